"""`python -m dsec_layers.daemon --home DIR`: the lazy file system daemon, with its stores."""

from __future__ import annotations

from functools import partial

from dsec_layers.api.keeping import keep
from dsec_layers.lazyfs.daemon import main
from dsec_layers.registry.urls import open_store

if __name__ == "__main__":
    main(open_store, beside=partial(keep, open_store=open_store))
