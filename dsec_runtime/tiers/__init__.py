"""Isolation tiers: each boots a root file system and hands back a channel into it."""
