"""Results of steps in stores, for the builds of other machines (`--cache-from`, `--cache-to`).

A result is kept in the form of a layer, under `cache/step:<key>`; docs/formats/stepcache.md has the
form. What a store gives is checked like any layer. A store that cannot be used is told of and done
without: no build fails for it.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dsec_layers.api.filedata import FileData, Place, pieces
from dsec_layers.api.opened import OpenedLayer
from dsec_layers.builder.pack import pack_layer
from dsec_layers.builder.stepcache import WorkFolder
from dsec_layers.builder.stepstores import MadeStep, Tell
from dsec_layers.builder.uppers import write_upper
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import (
    ConflictError,
    CorruptError,
    DsecError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
)
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import unpacked_metadata
from dsec_layers.linux import cancelling
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor, Provenance
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.tree import Entry
from dsec_layers.registry import layers, leases, tagging
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.urls import open_store
from dsec_layers.sources.upper import walk_upper

NAME: Final = "step"
_SOURCE: Final = "step"
_KEY, _IDENTITY, TITLE = "key", "identity", "title"
# A tag is set again when what it names is used and it is older: that is the time of its last use.
_RENEW_AFTER: Final = datetime.timedelta(days=1)


def reference(key: str) -> Reference:
    """The name of the result of `key` in a store."""
    return Reference(Kind.CACHE, NAME, key)


class StoredSteps:
    """Implements `StepStore` over a store. After it has not answered once, it is not asked again.

    `damaged` are the keys of what could not be used.
    """

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.damaged: set[str] = set()
        self._store = store
        self._away = False

    def fetch(self, key: str, folder: WorkFolder, tell: Tell) -> str | None:
        """See `StepStore.fetch`."""
        if self._away:
            return None
        try:
            target = self._store.resolve(reference(key))
        except NotFoundError:
            return None
        except (InterruptedError, NoSpaceError):
            raise
        except (DsecError, OSError) as error:
            self._away = True
            tell(f"going on without the step cache {self.url}: {error}")
            return None
        try:
            identity = _read(self._store, target, key, folder)
        except (InterruptedError, NoSpaceError):
            raise
        except (DsecError, OSError) as error:
            self.damaged.add(key)
            tell(f"a step in {self.url} cannot be used: {error}")
            return None
        _mark_used(self._store, key, target)
        return identity


def open_stored_steps(urls: Sequence[str], tell: Tell) -> list[StoredSteps]:
    """The stores at `urls`; of those that cannot be opened is told.

    Raises InvalidInputError for what is no URL of a store.
    """
    return list(map(StoredSteps, _opened(urls, tell, create=False)))


def open_destinations(urls: Sequence[str], tell: Tell) -> list[Store]:
    """The stores at `urls`, made when missing; of those that cannot be had is told.

    Raises InvalidInputError for what is no URL of a store.
    """
    return list(_opened(urls, tell, create=True))


def _opened(urls: Sequence[str], tell: Tell, *, create: bool) -> Iterator[Store]:
    for url in urls:
        try:
            yield open_store(url, create=create)
        except InvalidInputError:
            raise
        except DsecError as error:
            tell(f"going on without the step cache {url}: {error}")


def export(
    steps: Sequence[MadeStep],
    store: Store,
    work: Path,
    *,
    replace: Callable[[str], bool],
    workers: int | None,
    tell: Tell,
) -> int:
    """Put what `steps` gave into `store`; returns how many it got.

    What stands there whole stays, unless `replace` says otherwise of its key. A step that was done
    on a run of a command of which the store has another is of no use there and left out. `work` is
    a folder for packs in the making. Whatever goes wrong with the store is told.
    """
    try:
        with leases.hold(store, purpose="cache") as held:
            exporter = _Exporter(store, held, work, workers)
            return sum(exporter.put(step, replace=replace(step.key)) for step in steps)
    except InterruptedError:
        raise
    except (DsecError, OSError) as error:
        tell(f"the step cache {store.url} did not get all steps: {error}")
        return 0


class _Exporter:
    def __init__(self, store: Store, held: leases.Held, work: Path, workers: int | None) -> None:
        self._store = store
        self._held = held
        self._work = work
        self._workers = workers
        self._unknown: set[str] = set()  # identities that nobody who uses the store comes to

    def put(self, step: MadeStep, *, replace: bool) -> bool:
        """Put one step after those it was done on; False when the store did not take it."""
        identity = step.result.identity
        if step.parent in self._unknown:
            self._unknown.add(identity)
            return False
        stands = self._standing(step.key)
        other = self._identity(stands, step.key) if stands and not replace else ""
        if other:
            if other != identity:
                self._unknown.add(identity)
            return False
        packed = pack_layer(
            walk_upper(step.result.upper),
            kind=Kind.CACHE,
            name=NAME,
            store=leases.LeasedWriter(self._store, self._held),
            work_dir=self._work,
            provenance=Provenance(
                source=_SOURCE,
                inputs={_KEY: step.key, _IDENTITY: identity, TITLE: step.title},
            ),
            workers=self._workers,
        )
        self._held.check()
        try:
            name, target = reference(step.key), packed.manifest.descriptor()
            tagging.set_tag(self._store, name, target, expected=stands)
        except ConflictError:  # somebody else was faster
            return False
        return True

    def _standing(self, key: str) -> Descriptor | None:
        try:
            return self._store.resolve(reference(key))
        except NotFoundError:
            return None

    def _identity(self, target: Descriptor, key: str) -> str:
        """The identity of what stands in the store; empty when that is damaged."""
        try:
            return _checked(layers.load_layer(self._store, target), key)
        except (CorruptError, InvalidInputError, NotFoundError):
            return ""


def _checked(layer: layers.StoredLayer, key: str) -> str:
    inputs = layer.config.provenance.inputs
    if layer.config.kind is not Kind.CACHE or inputs.get(_KEY) != key or not inputs.get(_IDENTITY):
        raise CorruptError(f"{reference(key)} is not the result of that step")
    return inputs[_IDENTITY]


def _read(store: Store, target: Descriptor, key: str, folder: WorkFolder) -> str:
    """Fetch a result whole, checked, then write it into the upper of `folder`; its identity."""
    stored = layers.load_layer(store, target)
    identity = _checked(stored, key)
    here = DirectoryStore.open(folder.spool / "fetched", create=True)
    with contextlib.closing(here):
        for blob in stored.manifest.blobs:
            here.put(blob, _pieces(store, blob))
        layer = MountLayer(target, stored.manifest, stored.config, here)
        with ErofsImage(b"".join(unpacked_metadata(layer))) as image:
            opened = OpenedLayer(layer, image)
            write_upper(folder.upper, opened.tree, _reader(opened))
    return identity


def _pieces(store: Store, blob: Descriptor) -> Iterator[bytes]:
    for piece in store.stream(blob):
        cancelling.check()
        yield piece


def _reader(opened: OpenedLayer) -> Callable[[Entry], Iterator[tuple[int, bytes]]]:
    data = FileData()

    def read(entry: Entry) -> Iterator[tuple[int, bytes]]:
        place = Place(opened, entry)
        for piece in pieces(place):
            yield piece.file_offset, data.piece(place, piece)

    return read


def _mark_used(store: Store, key: str, target: Descriptor) -> None:
    """Set the tag again when it is old; who may not write there does not collect there."""
    with contextlib.suppress(DsecError, OSError, ValueError):
        store.has(target)
        since = store.tagged(reference(key)).annotations.get(tagging.TIME_KEY)
        now = datetime.datetime.now(datetime.UTC)
        if since and now - datetime.datetime.fromisoformat(since) > _RENEW_AFTER:
            tagging.set_tag(store, reference(key), target, expected=target)
