"""OCI registries: as stores of layers, and as places where images come from and go to."""
