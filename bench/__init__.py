"""Benchmarks: `python -m bench NAME` runs one, `python -m bench all` all; the last line is JSON."""
