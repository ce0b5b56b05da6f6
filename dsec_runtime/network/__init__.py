"""What a sandbox may reach: pooled namespaces, rules in the kernel, names answered by the edge."""
