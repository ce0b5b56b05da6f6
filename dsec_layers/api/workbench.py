"""One machine's view of layers: its own store, and further stores to read from."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from dsec_layers.api.lately import Lately
from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.blobs import Store
from dsec_layers.model.environment import REFERENCE_KEY, Environment
from dsec_layers.model.manifest import OCI_INDEX, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig, merge
from dsec_layers.registry import layers as stored
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.failover import Failover
from dsec_layers.registry.leases import Held
from dsec_layers.registry.local import Home
from dsec_layers.registry.urls import open_store

if TYPE_CHECKING:  # cryptography is loaded only when a signature is asked for
    from dsec_layers.api.trust import Trust


def default_home() -> Path:
    """$DSEC_HOME, else /var/lib/dsec for root, else a folder of the user's."""
    return Home.default().root


class Stack(msgspec.Struct, frozen=True):
    """What a reference means for mounting.

    Its layers, lowest first, and the merged wishes to run.
    """

    reference: Reference
    descriptor: Descriptor
    layers: tuple[MountLayer, ...]
    run: RunConfig

    @property
    def blobs(self) -> Iterator[Descriptor]:
        """All that it is made of."""
        yield self.descriptor
        for layer in self.layers:
            yield layer.descriptor
            yield from layer.manifest.blobs


class Workbench:
    """The state below `root` (DSEC_HOME), and the URLs of stores to read from after the local one.

    Nothing is opened or made before it is needed. With `trust`, what its keys have not signed is
    neither stacked nor composed nor pulled.
    """

    def __init__(self, root: Path, stores: Sequence[str] = (), trust: Trust | None = None) -> None:
        self.home = Home(root)
        self.stores = tuple(stores)
        self.trust = trust
        self.lately = Lately()  # manifests that a further store had, and what was lent there
        self._lock = threading.Lock()
        self._fetching: WeakValueDictionary[Reference, _Turn] = WeakValueDictionary()

    @classmethod
    def default(cls, stores: Sequence[str] = ()) -> Workbench:
        """The workbench of this user on this machine."""
        return cls(default_home(), stores)

    @cached_property
    def local(self) -> DirectoryStore:
        """The local store, made when missing."""
        return self.home.open_store()

    @cached_property
    def remotes(self) -> tuple[Store, ...]:
        """The further stores, opened."""
        return tuple(open_store(url) for url in self.stores)

    @cached_property
    def reader(self) -> Failover:
        """Reads blobs from the local store first, then from the others."""
        return Failover((self.local, *self.remotes))

    def store(self, url: str | None) -> Store:
        """The store at `url`, or the local one. Raises InvalidInputError or StoreError."""
        return open_store(url) if url else self.local

    def resolve(self, reference: Reference) -> Descriptor:
        """The manifest or index that `reference` names; its documents are local afterwards.

        What only a further store has is fetched without its packs: enough to mount it lazily.
        Raises NotFoundError with a hint, CorruptError or StoreError.
        """
        try:
            return self.local.resolve(reference)
        except NotFoundError:
            return self._fetch(reference, trusted=False)

    def trusted(self, reference: Reference) -> Descriptor:
        """As `resolve`; raises SignatureError for what `trust` does not accept, and fetches none.

        A signature may be in another store than what it signs.
        """
        if self.trust is None:
            return self.resolve(reference)
        try:
            descriptor = self.local.resolve(reference)
        except NotFoundError:
            return self._fetch(reference, trusted=True)
        self.trust.check(self.reader, reference, descriptor)
        return descriptor

    def admitted(self, reference: Reference, store: Store) -> Reference:
        """`reference` bound to what it is in `store` now, if that is trusted.

        Raises NotFoundError, SignatureError, CorruptError or StoreError.
        """
        target = store.resolve(reference)
        if self.trust is None:
            return reference
        self.trust.check(store, reference, target)
        return reference.pinned(target.parsed_digest)

    def by_digest(self, digest: str) -> Descriptor:
        """The manifest of the layer with this digest. Raises as `resolve`."""
        return self.resolve(Reference.parse(f"{Kind.BASE.value}/by-digest@{digest}"))

    def layer(self, descriptor: Descriptor) -> MountLayer:
        """Load manifest and config of one layer. Raises NotFoundError, CorruptError, StoreError."""
        layer = stored.load_layer(self.reader, descriptor)
        return MountLayer(
            descriptor=descriptor.alone,
            manifest=layer.manifest,
            config=layer.config,
            blobs=self.reader,
            stores=(self.local.url, *self.stores),
            reference=descriptor.annotations.get(REFERENCE_KEY, ""),
        )

    def environment(self, descriptor: Descriptor) -> Environment:
        """Load an environment. Raises NotFoundError, CorruptError, StoreError."""
        return stored.load_environment(self.reader, descriptor)

    def stack(self, reference: Reference) -> Stack:
        """All layers that `reference` stands for.

        An environment's are listed in it; a workspace or toolkit stands on the base that it was
        built on; a signature covers them all, by their digests. Raises NotFoundError,
        SignatureError, CorruptError or StoreError.
        """
        descriptor = self.trusted(reference)
        if descriptor.media_type == OCI_INDEX:
            environment = self.environment(descriptor)
            layers = tuple(self.layer(layer) for layer in environment.layers)
            return Stack(reference, descriptor, layers, environment.run)
        layers = self._with_bases(descriptor)
        return Stack(reference, descriptor, layers, merge(layer.config.run for layer in layers))

    def held_stack(self, reference: Reference, held: Held) -> Stack:
        """The same, and `held`, a lease on the local store, lets nothing of it be removed there."""
        while True:
            stack = self.stack(reference)
            held.add(stack.blobs)
            if all(self.local.has(layer.descriptor) for layer in stack.layers):
                return (
                    stack  # else it went just before the lease, and is not found or fetched again
                )

    def held_layer(self, reference: Reference, held: Held) -> MountLayer:
        """One layer without what it was built on, kept by `held`. Raises as `stack`."""
        while True:
            layer = self.layer(self.trusted(reference))
            held.add((layer.descriptor, *layer.manifest.blobs))
            if self.local.has(layer.descriptor):
                return layer

    def check_packs(self, layers: Sequence[MountLayer]) -> None:
        """Fail before anything is mounted that could only give EIO. Raises NotFoundError."""
        if self.stores:
            return
        for layer in layers:
            for pack in layer.manifest.packs:
                if not self.local.has(pack):
                    raise NotFoundError(
                        f"the data of {layer} is not in the local store",
                        hint="name the store that has it with --store URL, or pull it first",
                    )

    def _fetch(self, reference: Reference, *, trusted: bool) -> Descriptor:
        """Fetch a reference once, however many threads of this process start it together."""
        with self._lock:
            turn = self._fetching.setdefault(reference, _Turn())
        with turn.lock:
            try:
                found = self.local.resolve(reference)
            except NotFoundError as error:
                return self._fetch_now(reference, error, trusted=trusted)
        if trusted and self.trust is not None:
            self.trust.check(self.reader, reference, found)
        return found

    def _fetch_now(
        self, reference: Reference, missing: NotFoundError, *, trusted: bool
    ) -> Descriptor:
        from dsec_layers.registry import transfer  # not needed for what is here: a faster start

        for store in self.remotes:
            try:
                wanted = self.admitted(reference, store) if trusted else reference
                target = transfer.copy(
                    wanted, store, self.local, metadata_only=True, of_layers=False
                ).target
            except NotFoundError:
                continue
            self.lately.note(each.digest for each in stored.layer_descriptors(self.local, target))
            return target
        raise NotFoundError(
            f"there is no {reference} here"
            + (f" nor in {', '.join(self.stores)}" if self.stores else ""),
            hint="`dsec-layers ls` lists what is here; --store URL adds a store to look in",
        ) from missing

    def _with_bases(self, descriptor: Descriptor) -> tuple[MountLayer, ...]:
        """A base holds a whole tree; the others hold what they add to the layer they name."""
        found = [self.layer(descriptor)]
        if found[0].config.kind is Kind.CACHE:
            raise InvalidInputError(
                f"{found[0]} is the result of a build step, and no layer",
                hint="builds take it by --cache-from",
            )
        while found[0].config.kind is not Kind.BASE:
            if len(found) > _MAX_DEPTH:
                raise CorruptError(f"{found[-1]} stands on more than {_MAX_DEPTH} layers")
            found.insert(0, self.layer(self._base_of(found[0])))
        return tuple(found)

    def _base_of(self, layer: MountLayer) -> Descriptor:
        try:
            return self.by_digest(layer.config.provenance.base)
        except NotFoundError as error:
            raise NotFoundError(
                f"the layer that {layer} was built on is not here: {layer.config.provenance.base}",
                hint="pull it, or compose an environment with a base of your choice",
            ) from error


class _Turn:
    """Whoever holds the lock fetches what the others wait for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_MAX_DEPTH = 100
