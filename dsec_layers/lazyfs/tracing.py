"""The recordings of all layers that a daemon serves, and their way into files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final

from dsec_layers.errors import DsecError
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.recording import Recording
from dsec_layers.lazyfs.traces import TraceFiles
from dsec_layers.model.digest import Digest
from dsec_layers.model.trace import Trace, of_layers

_SAVE_EVERY_S: Final = 5.0
_log = logging.getLogger(__name__)


class Tracing:
    """Records runs: from the moment a layer is attached for an environment until it is detached.

    Nothing here fails a mount or a read: what cannot be written is logged and lost. Safe for many
    threads.
    """

    def __init__(self, files: TraceFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._served: dict[str, ServedLayer] = {}
        self._ended: list[Recording] = []
        self._wake = threading.Event()

    def start(self, layers: Iterable[ServedLayer]) -> None:
        """Go on with what an earlier daemon recorded of `layers`, and write by the way."""
        self._files.sweep()
        with self._lock:
            self._served = {layer.digest.hex: layer for layer in layers}
            for name, live in self._files.live():
                if layer := self._served.get(name):
                    layer.recording = Recording.resumed(live, len(layer.table))
                else:
                    self._merge(name, of_layers(live.environment, [live.trace]))
        threading.Thread(target=self._keep, name="traces", daemon=True).start()

    def attached(self, layer: ServedLayer, environment: str) -> None:
        """`environment` mounts `layer`; an empty one is somebody who mounts it for himself."""
        with self._lock:
            name = layer.digest.hex
            if name not in self._served:
                self._served[name] = layer
                if environment:
                    digest = str(layer.digest)
                    layer.recording = Recording(environment, digest, len(layer.table))
            elif layer.recording is not None and layer.recording.environment != environment:
                layer.recording.close()

    def detached(self, digest: Digest) -> None:
        """The run of a layer has ended; it is written soon, by another thread."""
        with self._lock:
            layer = self._served.pop(digest.hex, None)
            if layer is not None and layer.recording is not None:
                self._ended.append(layer.recording)
                layer.recording = None
        self._wake.set()

    def save(self) -> None:
        """Write what has ended to its trace, and how far the others have come."""
        with self._saving:
            with self._lock:
                ended, self._ended = self._ended, []
                live = [layer.recording for layer in self._served.values() if layer.recording]
            for recording in ended:
                trace = recording.trace()
                name = Digest.parse(trace.layer).hex
                self._merge(name, of_layers(recording.environment, [trace]))
            for recording in live:
                self._put_live(recording)

    def finish(self) -> None:
        """End all runs and write them."""
        for layer in list(self._served.values()):
            self.detached(layer.digest)
        self.save()

    def _keep(self) -> None:
        while True:
            self._wake.wait(_SAVE_EVERY_S)
            self._wake.clear()
            self.save()

    def _put_live(self, recording: Recording) -> None:
        progress = recording.unsaved()
        if progress is not None and progress.trace.touches:
            try:
                self._files.put_live(progress)
            except (DsecError, OSError) as error:
                _log.warning("a trace is not written: %s", error)

    def _merge(self, name: str, trace: Trace) -> None:
        try:
            if trace.layers:
                self._files.add(trace)
            self._files.drop_live(name)
        except (DsecError, OSError) as error:
            _log.warning("a trace is not written: %s", error)
