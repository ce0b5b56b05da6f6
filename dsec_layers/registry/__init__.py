"""Stores of blobs and references, and moving layers between them."""
