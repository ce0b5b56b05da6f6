"""EROFS metadata images: written from a tree, read without the kernel, mounted by the kernel."""
