"""Where trees come from: directories, overlay uppers, archives and OCI images."""
