"""The client: `DSecClient`, run arguments for each tier, and `Sandbox`."""
