"""System calls, mounts, processes and containers.

The only package that touches the kernel by hand.
"""
