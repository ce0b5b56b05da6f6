"""The lazy file system: chunk cache, fetching, the FUSE daemon and the rootfs on top."""
