"""Trees and run configurations as OCI images: the other direction of `sources`."""
