"""Containers: namespaces, cgroups and an overlay over shared layers, booted by an OCI runtime."""
