"""Stores of layers: directories, cluster file systems, and the transfer between them."""
