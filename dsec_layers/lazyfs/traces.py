"""The access traces of one home.

    DSEC_HOME/traces/<environment hex>.zst     what its runs touched, merged
    DSEC_HOME/traces/live/<layer hex>.json     what a mounted layer's run has touched until now
    DSEC_HOME/traces/lock                      held (flock) while a trace changes

A live file is merged into the trace of its environment when the run ends, and counts with it until
then. It outlives the daemon, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs import durable
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.model.trace import MAX_STORED_BYTES, LayerTrace, Trace, merge, of_layers

_SUFFIX: Final = ".zst"
_MOST_TRACES: Final = 1000
_MOST_LOOKED_INTO: Final = 16
_log = logging.getLogger(__name__)


class Live(msgspec.Struct, frozen=True):
    """A run of one layer that goes on.

    `began_ms` is since 1970. `closed`: another environment has mounted the layer too, and nobody
    can tell any more for whom it is read.
    """

    environment: str
    began_ms: int
    closed: bool
    trace: LayerTrace


class TraceFiles:
    """Reads and writes them. Safe for many threads and processes."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "traces"
        self._live = self._folder / "live"

    def __contains__(self, environment: str) -> bool:
        """Whether something is known of an environment, of runs that have ended."""
        return self._path(environment).exists()

    def load(self, environment: str) -> Trace | None:
        """What is known of an environment, of runs that go on too. Raises CorruptError."""
        found = self._stored(self._path(environment))
        live = [each for _, each in self.live() if each.environment == environment]
        if found is None and not live:
            return None
        parts = [*(found.layers if found else ()), *(each.trace for each in live)]
        return of_layers(environment, parts)

    def part(self, environment: str, layer: str) -> LayerTrace | None:
        """What is known of a layer: from that environment, else from the newest that has it.

        Traces that are damaged are passed over, and logged.
        """
        newest = sorted(self._folder.glob(f"*{_SUFFIX}"), key=_mtime, reverse=True)
        for path in (self._path(environment), *newest[:_MOST_LOOKED_INTO]):
            try:
                found = self._stored(path)
            except CorruptError as error:
                _log.warning("%s; it is ignored", error)
                continue
            if part := found and found.part(layer):
                return part
        return None

    def add(self, *traces: Trace) -> Trace:
        """Merge traces of one environment into what is known of it; a damaged one is replaced.

        Raises InvalidInputError, NoSpaceError.
        """
        merged = merge(traces)
        with self._locked():
            path = self._path(merged.environment)
            try:
                before = self._stored(path)
            except CorruptError as error:
                _log.warning("%s; it is replaced", error)
                before = None
            if before is not None:
                merged = merge([before, merged])
            durable.write_whole(path, [merged.encode()])
            for old in sorted(self._folder.glob(f"*{_SUFFIX}"), key=_mtime)[:-_MOST_TRACES]:
                old.unlink(missing_ok=True)
        return merged

    def remove(self, environment: str) -> bool:
        """Forget what is known; whether there was anything. A run that goes on goes on."""
        with self._locked():
            known = self._path(environment).exists()
            self._path(environment).unlink(missing_ok=True)
        return known

    def environments(self) -> list[str]:
        """The environments that something is known of, by digest."""
        hexes = {path.name.removesuffix(_SUFFIX) for path in self._folder.glob(f"*{_SUFFIX}")}
        return sorted(f"sha256:{name}" for name in hexes if not name.startswith("."))

    def live(self) -> Iterator[tuple[str, Live]]:
        """The runs that go on, with the hex of their layers. A damaged file is removed."""
        for path in sorted(self._live.glob("*.json")):
            try:
                yield path.stem, canonical.decode(path.read_bytes(), Live, what=str(path))
            except FileNotFoundError:
                continue
            except CorruptError as error:
                _log.warning("%s; it is removed", error)
                path.unlink(missing_ok=True)

    def put_live(self, live: Live) -> None:
        """Write down how far a run has come. Raises NoSpaceError."""
        self._live.mkdir(parents=True, exist_ok=True)
        name = Digest.parse(live.trace.layer).hex
        # Not synced: a run ends with the machine, and a file that was cut short is removed.
        durable.write_whole(self._live / f"{name}.json", [canonical.encode(live)], sync=False)

    def drop_live(self, layer_hex: str) -> None:
        """Forget a run."""
        (self._live / f"{layer_hex}.json").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what killed writers left."""
        for folder in (self._folder, self._live):
            durable.sweep(folder)

    def _stored(self, path: Path) -> Trace | None:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_STORED_BYTES + 1)
        except FileNotFoundError:
            return None
        trace = Trace.decode(data, what=f"trace {path}")
        if Digest.parse(trace.environment).hex != path.name.removesuffix(_SUFFIX):
            raise CorruptError(f"trace {path} is of {trace.environment}")
        return trace

    def _path(self, environment: str) -> Path:
        return self._folder / f"{Digest.parse(environment).hex}{_SUFFIX}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
