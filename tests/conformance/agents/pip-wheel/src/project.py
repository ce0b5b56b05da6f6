"""A project."""
