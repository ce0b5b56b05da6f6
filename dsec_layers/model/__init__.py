"""Pure values: names, trees, manifests, configurations, and the store protocol. No I/O."""
