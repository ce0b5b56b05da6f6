"""What a node does beside its mounts, for as long as they are there: it renews their leases."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from dsec_layers.errors import DsecError
from dsec_layers.lazyfs.attachedfiles import recorded_stores
from dsec_layers.lazyfs.journal import Journal, Phase
from dsec_layers.registry import standing

_log = logging.getLogger(__name__)


def keep(home: Path, open_store: Callable[[str], object]) -> None:
    """Renew the leases of all mounts of this home, now and then, until the process ends."""
    pause = threading.Event()  # never set
    while True:
        renew(home, open_store)
        pause.wait(standing.RENEW_EVERY_S)


def renew(home: Path, open_store: Callable[[str], object]) -> None:
    """Renew them once; what fails is logged, and tried again the next time."""
    stores = recorded_stores(home / "run")
    local = (home / "store").resolve()
    for record in Journal(home / "run").records():
        layers = [use.hex for use in record.layers]
        urls = dict.fromkeys(url for each in layers for url in stores.get(each, ()))
        for url in urls if record.phase is Phase.MOUNTED else ():
            try:
                store = open_store(url)
                if getattr(store, "root", None) != local:  # there the journal itself is asked
                    standing.renew(store, layers)
            except DsecError as error:
                _log.warning("the lease of %s at %s is not renewed: %s", record.name, url, error)
