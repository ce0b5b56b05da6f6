"""EROFS images: our own writer and reader of multi-device metadata."""
