"""The daemon of a node: its HTTP API, its journal, admission and lifetimes."""
