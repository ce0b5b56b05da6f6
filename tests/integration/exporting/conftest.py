"""The command line over a home of its own."""

from tests.support.cli import bare

__all__ = ["bare"]
