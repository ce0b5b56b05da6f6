"""From file contents to a device, chunks, the chunk table and packs."""
