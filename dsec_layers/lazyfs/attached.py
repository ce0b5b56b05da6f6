"""The attached layers, remembered across daemons.

    run/attached.json          connection, generation
    run/attached/<layer hex>   see attachedfiles.py

A layer's node number comes from its digest: the kernel remembers numbers as long as the FUSE
connection lives, and whatever happens to the state here, the content behind one must be the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import CorruptError, DsecError, NoSpaceError
from dsec_layers.lazyfs import durable
from dsec_layers.lazyfs.attachedfiles import AttachedFiles, Known
from dsec_layers.lazyfs.blobfs import File
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.fetch import Fetcher
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.lazyfs.loading import load_served_layer
from dsec_layers.lazyfs.protocol import Counts, Wanted
from dsec_layers.lazyfs.readtimes import ReadTimes
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.lazyfs.streams import Share
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest

_FILE: Final = "attached.json"
_LOADED_AT_ONCE: Final = 16
_log = logging.getLogger(__name__)


class _State(msgspec.Struct, frozen=True):
    connection: str = ""
    generation: int = 0


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
        share: Share,
    ) -> None:
        self._file = run / _FILE
        self._files = AttachedFiles(run)
        self._fetcher = fetcher
        self._lanes = lanes
        self._times = times
        self._share = share
        self._lock = threading.Lock()
        self._by_node: dict[int, File] = {}
        self._by_name: dict[bytes, File] = {}
        self._past = Counters()
        before = _read_state(self._file)
        self._files.start(anew=before.connection != connection)
        self.generation = 1 + (before.generation if before.connection == connection else 0)
        self._unwritten: _State | None = _State(connection, self.generation)
        try:
            self._write_state()
        except NoSpaceError as error:
            _log.warning("%s", error)
            if before.connection == connection:  # else it must be there before a layer is
                self._unwritten = None

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
        for name in self._files.names():
            try:
                if known := self._files.attached(name):
                    self.attach([Wanted(known.layer, known.stores)])
            except DsecError as error:
                _log.error("layer %s cannot be served again: %s", name, error)

    def attach(self, layers: Sequence[Wanted]) -> list[File]:
        """Serve layers; stores given now come before those given earlier.

        Raises NotFoundError, CorruptError, StoreError or NoSpaceError; some of the layers may be
        served then.
        """
        known = [self._known(wanted) for wanted in layers]
        loaded = self._loaded(known)
        with self._lock:
            self._write_state()
            return [self._serve(each, loaded.get(each.name)) for each in known]

    def detach(self, digests: Iterable[Digest]) -> bool:
        """Stop serving layers; False when none was attached."""
        changed = False
        with self._lock:
            for name in {digest.hex for digest in digests} & set(self._files.names()):
                changed = True
                self._files.retire(name)
                file = self._by_name.pop(name.encode(), None)
                if file is not None:
                    del self._by_node[file.node]
                    self._past.add(**msgspec.structs.asdict(file.device.layer.counters.counts()))
        return changed

    def _known(self, wanted: Wanted) -> Known:
        """What a layer is to be served by; its documents too when it is not served yet."""
        name = wanted.layer.parsed_digest.hex
        if served := self.by_name(name.encode()):
            urls = (*wanted.stores, *served.device.layer.stores.urls)
            return Known(wanted.layer, tuple(dict.fromkeys(urls)), ())
        attached = self._files.attached(name)
        kept = attached or self._files.before(name)
        urls = (*wanted.stores, *(attached.stores if attached else ()))
        return Known(wanted.layer, tuple(dict.fromkeys(urls)), kept.documents if kept else ())

    def _loaded(self, layers: Sequence[Known]) -> dict[str, tuple[LayerDevice, Known]]:
        """Devices of those that are not served yet; stores are asked about many at once."""
        new = [each for each in layers if self.by_name(each.name.encode()) is None]
        away = [each for each in new if not each.documents]
        with ThreadPoolExecutor(_LOADED_AT_ONCE, "attach") as pool:
            found = list(pool.map(self._load, away))
        found += [self._load(each) for each in new if each.documents]
        return {known.name: (device, known) for device, known in found}

    def _load(self, known: Known) -> tuple[LayerDevice, Known]:
        chain = StoreChain(known.stores, self._lanes, Counters())
        layer, documents = load_served_layer(known.layer, chain, known.documents)
        device = LayerDevice(layer, self._fetcher, self._times, self._share)
        return device, msgspec.structs.replace(known, documents=documents)

    def _serve(self, known: Known, loaded: tuple[LayerDevice, Known] | None) -> File:
        name = known.name
        file = self._by_name.get(name.encode())
        if file is None:
            device, whole = loaded or self._load(known)  # it has just been detached
            self._files.put(whole)
            file = File(_node(name), name.encode(), device)
            self._by_node[file.node] = self._by_name[file.name] = file
        elif (layer := file.device.layer).stores.urls != known.stores:
            written = self._files.attached(name)
            documents = written.documents if written else ()
            self._files.put(msgspec.structs.replace(known, documents=documents))
            layer.stores = layer.stores.over(known.stores)
        return file

    def _write_state(self) -> None:
        if self._unwritten is not None:
            # Not synced: no FUSE connection outlives the machine, another one forgets all this.
            durable.write_whole(self._file, [msgspec.json.encode(self._unwritten)], sync=False)
            self._unwritten = None


def _node(name: str) -> int:
    """62 bits of a digest, above the root's number: that two layers meet is out of the question."""
    return int(name[:16], 16) >> 2 | 1 << 62


def _read_state(path: Path) -> _State:
    try:
        return canonical.decode(path.read_bytes(), _State, what=str(path))
    except FileNotFoundError:
        return _State()
    except CorruptError:
        _log.exception("attached layers are forgotten")
        return _State()
