"""The attached layers, remembered across daemons.

    run/attached.json          connection, generation, layers with their stores
    run/attached/<layer hex>/  manifest, config and table of a layer, each named by its sha256, so
                               that a successor needs no store to go on

A layer's node number comes from its digest: the kernel remembers numbers as long as the FUSE
connection lives, and whatever happens to the state here, the content behind one must be the same.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import CorruptError, DsecError, NoSpaceError
from dsec_layers.lazyfs import durable
from dsec_layers.lazyfs.blobfs import File
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.fetch import Fetcher
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.lazyfs.loading import load_served_layer
from dsec_layers.lazyfs.protocol import Counts
from dsec_layers.lazyfs.readtimes import ReadTimes
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor

_FILE: Final = "attached.json"
_log = logging.getLogger(__name__)


class _Layer(msgspec.Struct, frozen=True):
    manifest: Descriptor
    stores: tuple[str, ...]


class _State(msgspec.Struct, frozen=True):
    connection: str = ""
    generation: int = 0
    layers: dict[str, _Layer] = {}


class AttachedLayers:
    """The files of blobfs (it is a `blobfs.Files`). Safe for many threads.

    `connection` names the FUSE connection. With another one than before nothing is attached: what
    was mounted is dead, and who mounts again attaches again.
    """

    def __init__(
        self,
        run: Path,
        connection: str,
        fetcher: Fetcher,
        lanes: Lanes,
        times: ReadTimes,
    ) -> None:
        self._file = run / _FILE
        self._folder = run / "attached"
        self._fetcher = fetcher
        self._lanes = lanes
        self._times = times
        self._lock = threading.Lock()
        self._by_node: dict[int, File] = {}
        self._by_name: dict[bytes, File] = {}
        self._past = Counters()
        self._state = _State()
        before = _read_state(self._file)
        if before.connection != connection:
            shutil.rmtree(self._folder, ignore_errors=True)
            before = _State(connection)
        self._keep_if_possible(msgspec.structs.replace(before, generation=before.generation + 1))

    @property
    def generation(self) -> int:
        """How many daemons have served this connection, this one included."""
        return self._state.generation

    @property
    def past(self) -> Counts:
        """What layers that are detached now have counted."""
        return self._past.counts()

    def by_node(self, node: int) -> File | None:
        """The file with this node number."""
        return self._by_node.get(node)

    def by_name(self, name: bytes) -> File | None:
        """The file with this name."""
        return self._by_name.get(name)

    def listed(self) -> Sequence[File]:
        """All files in order of their names."""
        with self._lock:
            return sorted(self._by_name.values(), key=lambda file: file.name)

    def restore(self) -> None:
        """Serve again what earlier daemons served; what cannot be loaded is logged and kept."""
        for name, layer in list(self._state.layers.items()):
            try:
                self.attach(layer.manifest, layer.stores)
            except DsecError as error:
                _log.error("layer %s cannot be served again: %s", name, error)

    def attach(self, manifest: Descriptor, urls: Sequence[str]) -> File:
        """Serve a layer; stores given now come before those given earlier.

        Raises NotFoundError, CorruptError, StoreError, NoSpaceError.
        """
        name = manifest.parsed_digest.hex
        known = self._state.layers.get(name)
        merged = tuple(dict.fromkeys((*urls, *(known.stores if known else ()))))
        device = self._load(name, manifest, merged)
        with self._lock:
            file = self._by_name.get(name.encode())
            if file is None:
                file = File(_node(name), name.encode(), device)
            else:
                file.device.layer.stores = file.device.layer.stores.over(merged)
            layers = {**self._state.layers, name: _Layer(manifest, merged)}
            self._keep(msgspec.structs.replace(self._state, layers=layers))
            self._by_node[file.node] = self._by_name[file.name] = file
        return file

    def detach(self, digest: Digest) -> bool:
        """Stop serving a layer; False when it was not attached."""
        name = digest.hex
        with self._lock:
            layers = {key: layer for key, layer in self._state.layers.items() if key != name}
            if len(layers) == len(self._state.layers):
                return False
            self._keep_if_possible(msgspec.structs.replace(self._state, layers=layers))
            file = self._by_name.pop(name.encode(), None)
            if file is not None:
                del self._by_node[file.node]
                self._past.add(**msgspec.structs.asdict(file.device.layer.counters.counts()))
            shutil.rmtree(self._folder / name, ignore_errors=True)
        return True

    def _load(self, name: str, manifest: Descriptor, urls: Sequence[str]) -> LayerDevice:
        present = self.by_name(name.encode())
        if present is not None:
            return present.device
        chain = StoreChain(urls, self._lanes, Counters())
        layer = load_served_layer(manifest, self._folder / name, chain)
        return LayerDevice(layer, self._fetcher, self._times)

    def _keep(self, state: _State) -> None:
        if state == self._state:
            return
        # Not synced: no FUSE connection outlives the machine, and another one forgets all this. Not
        # sorted: with 1,000 layers that takes ten times as long, and each of them is attached once.
        durable.write_whole(self._file, [msgspec.json.encode(state)], sync=False)
        self._state = state

    def _keep_if_possible(self, state: _State) -> None:
        """On a full disk the file keeps more than there is, which does no harm: serving goes on."""
        try:
            self._keep(state)
        except NoSpaceError as error:
            _log.warning("%s", error)
            self._state = state


def _node(name: str) -> int:
    """62 bits of a digest, above the root's number: that two layers meet is out of the question."""
    return int(name[:16], 16) >> 2 | 1 << 62


def recorded_layers(run: Path) -> list[str]:
    """The digests of the layers that the last daemon served, in hex."""
    return sorted(_read_state(run / _FILE).layers)


def recorded_stores(run: Path) -> dict[str, tuple[str, ...]]:
    """The URLs of the stores that these layers are read from, by their digests in hex."""
    return {name: layer.stores for name, layer in _read_state(run / _FILE).layers.items()}


def _read_state(path: Path) -> _State:
    try:
        return canonical.decode(path.read_bytes(), _State, what=str(path))
    except FileNotFoundError:
        return _State()
    except CorruptError:
        _log.exception("attached layers are forgotten")
        return _State()
