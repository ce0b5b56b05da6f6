"""The command line over a home of its own."""

from tests.support.cli import bare, base_store, cli

__all__ = ["bare", "base_store", "cli"]
