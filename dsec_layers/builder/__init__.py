"""From a Layerfile to a Source, and from a Source to the blobs of a layer."""
