"""What a successor must know of each attached layer, in a file of its own.

    run/attached/<layer hex>    MessagePack of `Known`: descriptor, stores, and the manifest, config
                                and chunk table as they are stored
    run/known/<layer hex>       the same of layers that were attached before, the newest of them, so
                                that one that comes again asks no store

A file for each, since a thousand layers in one would be written a thousand times over. Nothing is
synced: no FUSE connection outlives the machine, and another one begins with nothing attached.
Documents are known by their sha256, so a damaged one is not there.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import DsecError
from dsec_layers.lazyfs import durable
from dsec_layers.model.manifest import Descriptor

_MOST_KNOWN: Final = 4096
_log = logging.getLogger(__name__)


class Known(msgspec.Struct, frozen=True):
    """A layer: its manifest's descriptor, the URLs of its stores, its documents."""

    layer: Descriptor
    stores: tuple[str, ...]
    documents: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """The hex of its digest."""
        return self.layer.parsed_digest.hex


class AttachedFiles:
    """The files below the folder `run`. Of each layer one thread at a time changes them."""

    def __init__(self, run: Path) -> None:
        self._attached = _attached(run)
        self._known = run / "known"

    def start(self, *, anew: bool) -> None:
        """Make what is missing and remove what is too much; with `anew` nothing is attached."""
        for folder in (self._attached, self._known):
            folder.mkdir(mode=0o700, exist_ok=True)
            durable.sweep(folder)
        for name in self.names() if anew else ():
            self.retire(name)
        self._limit()

    def names(self) -> list[str]:
        """The layers (hex) that are attached."""
        return list(_names(self._attached))

    def attached(self, name: str) -> Known | None:
        """What is written of an attached layer; None where that is nothing of use."""
        return _read(self._attached / name)

    def before(self, name: str) -> Known | None:
        """The same of one that was attached earlier."""
        return _read(self._known / name)

    def put(self, layer: Known) -> None:
        """Write that a layer is attached. Raises NoSpaceError."""
        path, before = self._attached / layer.name, self._known / layer.name
        data = msgspec.msgpack.encode(layer)
        for place in (path, before):  # else a full disk would not let a successor serve
            with contextlib.suppress(OSError):
                if place.read_bytes() == data:
                    place.rename(path)
                    return
        durable.write_whole(path, [data], sync=False)

    def retire(self, name: str) -> None:
        """A layer is attached no more."""
        try:
            (self._attached / name).rename(self._known / name)
        except OSError as error:  # it is taken for attached, which does no harm
            _log.warning("layer %s is not written off: %s", name, error)

    def _limit(self) -> None:
        with os.scandir(self._known) as entries:
            found = [(entry.stat().st_mtime_ns, entry.path) for entry in entries]
        for _, path in heapq.nsmallest(len(found) - _MOST_KNOWN, found):
            Path(path).unlink(missing_ok=True)


def recorded_layers(run: Path) -> list[str]:
    """The digests of the layers that the last daemon served, in hex."""
    return sorted(_names(_attached(run)))


def recorded_stores(run: Path) -> dict[str, tuple[str, ...]]:
    """The URLs of the stores that these layers are read from, by their digests in hex."""
    found = {name: _read(_attached(run) / name) for name in recorded_layers(run)}
    return {name: known.stores for name, known in found.items() if known is not None}


def _attached(run: Path) -> Path:
    return run / "attached"


def _names(folder: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):  # noqa: PTH208 - at each mount, and long with many layers
            if not name.startswith("."):
                yield name


def _read(path: Path) -> Known | None:
    try:
        known = msgspec.msgpack.decode(path.read_bytes(), type=Known)
        return known if known.name == path.name else None
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, DsecError) as error:
        _log.warning("%s is of no use: %s", path, error)
        return None
