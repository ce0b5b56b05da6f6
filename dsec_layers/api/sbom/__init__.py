"""Bills of materials: which packages an environment shows, and which layer brings each."""
