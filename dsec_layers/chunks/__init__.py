"""The data of a layer: contents on a virtual device, cut into chunks, stored in packs."""
