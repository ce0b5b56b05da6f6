"""DSec layers: make, store, move and lazily mount the environments of agents."""

__version__ = "0.1.0"
