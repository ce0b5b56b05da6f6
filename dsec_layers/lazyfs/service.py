"""What the daemon is made of, put together, and its answers to clients."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

import dsec_layers
from dsec_layers.errors import BusyError, InvalidInputError
from dsec_layers.lazyfs import durable, holder, protocol
from dsec_layers.lazyfs.attached import AttachedLayers
from dsec_layers.lazyfs.blobfs import BlobFs, File
from dsec_layers.lazyfs.cache import ChunkCache, default_limit_bytes
from dsec_layers.lazyfs.control import ControlSocket
from dsec_layers.lazyfs.fetch import Fetcher
from dsec_layers.lazyfs.gathering import FetchLimits
from dsec_layers.lazyfs.lane import LaneLimits
from dsec_layers.lazyfs.lanes import Lanes, OpenStore
from dsec_layers.lazyfs.memory import MemoryChunks
from dsec_layers.lazyfs.metrics import Metrics
from dsec_layers.lazyfs.paths import Paths
from dsec_layers.lazyfs.prefetch import Prefetcher
from dsec_layers.lazyfs.readtimes import ReadTimes
from dsec_layers.lazyfs.slowreads import SlowReads
from dsec_layers.lazyfs.statistics import Statistics
from dsec_layers.lazyfs.streams import Share, StreamLimits
from dsec_layers.lazyfs.traces import TraceFiles
from dsec_layers.lazyfs.tracing import Tracing
from dsec_layers.linux import fuse, mount
from dsec_layers.model.digest import Digest

_DRAIN_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What can be tuned. `cache_limit_bytes` None means `default_limit_bytes`.

    Reads that take `slow_read_s` are logged. Metrics are served at `metrics_listen`, a HOST:PORT.
    """

    cache_limit_bytes: int | None = None
    memory_limit_bytes: int = 40 << 20
    fuse_threads: int = 6
    read_ahead_kib: int = 8192
    fetch: FetchLimits = field(default_factory=FetchLimits)
    streams: StreamLimits = field(default_factory=StreamLimits)
    store: LaneLimits = field(default_factory=LaneLimits)
    slow_read_s: float = 1.0
    metrics_listen: str = ""
    log_format: str = "json"


class Service:
    """One daemon's life. `connection` names the FUSE connection `fd`; `stop` is set to end it."""

    def __init__(
        self, paths: Paths, open_store: OpenStore, options: Options, connection: str, fd: int
    ) -> None:
        self.stop = threading.Event()
        self._paths = paths
        self._options = options
        self._blobs = str(paths.blobs)
        self._fd = fd
        self._connection = connection
        self._mount_source = f"dsec-{connection[:12]}"
        self._began = time.monotonic()
        limit = options.cache_limit_bytes or default_limit_bytes(paths.home)
        self._cache = ChunkCache(paths.chunks, limit)
        self._memory = MemoryChunks(options.memory_limit_bytes)
        self._slow_reads = SlowReads(paths.home)
        times = ReadTimes(options.slow_read_s, self._slow_reads.note)
        self._lanes = Lanes(open_store, options.store)
        self._fetcher = Fetcher(self._cache, self._memory, self._lanes, options.fetch)
        share = Share(options.streams)
        self._layers = AttachedLayers(
            paths.run, connection, self._fetcher, self._lanes, times, share
        )
        self._statistics = Statistics(
            self._layers, self._fetcher, self._lanes, self._cache, self._memory, times
        )
        self._metrics = Metrics(self._statistics, paths.home)
        traces = TraceFiles(paths.home)
        self._tracing = Tracing(traces)
        self._prefetcher = Prefetcher(self._fetcher, traces, limit)
        self._ends_mounts = False
        self._control = ControlSocket(paths.run, self._answer, self._sent)

    def start(self) -> None:
        """Serve: first what was attached before, then the kernel, then clients."""
        self._cache.sweep()
        durable.sweep(self._paths.run)
        threading.Thread(target=self._cache.scan, name="cache-scan", daemon=True).start()
        self._layers.restore()
        self._tracing.start(file.device.layer for file in self._layers.listed())
        self._mount()
        blobfs = BlobFs(self._fd, self._layers, threads=self._options.fuse_threads)
        blobfs.start()
        threading.Thread(target=self._outlive, args=(blobfs,), name="outlive", daemon=True).start()
        self._slow_reads.start()
        self._control.start()
        self._listen()
        _log.info("generation %d serves %s", self._layers.generation, self._paths.blobs)

    def _listen(self) -> None:
        """Metrics are worth no mount: an address that cannot be had is logged."""
        if self._options.metrics_listen:
            try:
                port = self._metrics.listen(self._options.metrics_listen)
                _log.info("metrics are served at port %d", port)
            except (OSError, InvalidInputError) as error:
                _log.error("no metrics at %s: %s", self._options.metrics_listen, error)

    def _outlive(self, blobfs: BlobFs) -> None:
        """When somebody has unmounted the connection, a new daemon must begin with a new one."""
        blobfs.join()
        _log.warning("%s was unmounted", self._paths.blobs)
        if holder.connection(self._paths.run) == self._connection:  # not that of a newer daemon
            holder.end(self._paths.run)
        self.stop.set()

    def halt(self) -> None:
        """Bring to the disk what has been fetched and recorded, before the process ends."""
        self._fetcher.halt()
        if self._ends_mounts:
            self._tracing.finish()
        else:
            self._tracing.save()

    def _mount(self) -> None:
        """Mount the connection, or take over the mount that it has already.

        The mount itself is never looked into: only this process could answer.
        """
        target = self._paths.blobs
        mounted = mount.mounted_at(target)
        if mounted is not None and mounted.source == self._mount_source:
            fuse.notify_resend(self._fd)
            return
        if mounted is not None:
            _log.warning("the connection of the mount at %s was lost; mounting anew", target)
            mount.unmount(target, lazy=True)
        fuse.mount(self._fd, target, self._mount_source)
        mounted = mount.mounted_at(target)
        if mounted is not None:
            with contextlib.suppress(OSError):
                fuse.set_read_ahead(mounted.device, self._options.read_ahead_kib)

    def _answer(self, request: protocol.Request) -> msgspec.Struct:
        match request:
            case protocol.Attach():
                return self._attach(request)
            case protocol.Detach():
                return self._detach([Digest.parse(each) for each in request.digests])
            case protocol.Ping():
                return protocol.Done()
            case protocol.GetStatus():
                return self._status()
            case protocol.GetStats():
                return self._statistics.stats()
            case protocol.GetMetrics():
                return protocol.Metrics(self._metrics.text())
            case protocol.Evict():
                self._fetcher.drain(_DRAIN_S)  # lest what is under way comes back
                self._cache.clear()
                self._memory.clear()
                return protocol.Done()
            case protocol.SaveTraces():
                self._tracing.save()
                return protocol.Done()
            case protocol.Stop():
                return self._may_stop(request)

    def _sent(self, request: protocol.Request) -> None:
        if isinstance(request, protocol.Stop):
            self._ends_mounts = not request.handover
            self.stop.set()

    def _attach(self, request: protocol.Attach) -> protocol.AllAttached:
        files, start = self._layers.attach(request.layers), request.start
        layers = [file.device.layer for file in files]
        for layer in layers:
            self._tracing.attached(layer, start.environment if start else "")
        if start is not None:
            self._prefetcher.attached(layers, start)
        return protocol.AllAttached(tuple(map(self._attached, files)))

    def _detach(self, digests: Sequence[Digest]) -> protocol.Done:
        for digest in digests:
            self._prefetcher.detached(digest)
            self._tracing.detached(digest)
        return protocol.Done(self._layers.detach(digests))

    def _may_stop(self, request: protocol.Stop) -> protocol.Done:
        count = len(self._layers.listed())
        if count and not (request.handover or request.force):
            raise BusyError(
                f"the daemon serves {count} layers",
                hint="unmount first, or `daemon restart` to replace it under live mounts",
            )
        return protocol.Done()

    def _attached(self, file: File) -> protocol.Attached:
        path = f"{self._blobs}/{file.name.decode()}"
        return protocol.Attached(str(file.device.layer.digest), path, file.device.size_bytes)

    def _status(self) -> protocol.Status:
        return protocol.Status(
            pid=os.getpid(),
            version=dsec_layers.__version__,
            generation=self._layers.generation,
            uptime_s=round(time.monotonic() - self._began, 3),
            mount=str(self._paths.blobs),
            layers=tuple(self._attached(file) for file in self._layers.listed()),
        )
