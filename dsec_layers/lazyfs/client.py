"""How the rest of the program reaches the daemon, and starts it when it is not there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dsec_layers.errors import BusyError, DaemonError
from dsec_layers.lazyfs import holder, protocol
from dsec_layers.lazyfs.attachedfiles import recorded_layers
from dsec_layers.lazyfs.paths import Paths
from dsec_layers.linux import detached, local_socket, mount
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 30.0
_LOG_TAIL_LINES = 5
_NOBODY = ("/bin/true",)
T = TypeVar("T")


class DaemonClient:
    """The daemon of one home. Safe for many threads and processes: a call is a connection.

    `module` is what `python -m` runs as the daemon.
    """

    def __init__(self, home: Path, *, module: str = "dsec_layers.daemon") -> None:
        self._paths = Paths(home.absolute())
        self._module = module

    def ensure(self) -> DaemonClient:
        """Start holder and daemon unless they run; a killed daemon is succeeded. Returns itself.

        Raises DaemonError with the end of the log when the daemon does not come up.
        """
        if self.running():
            return self
        self._paths.create()
        with self._starting():
            if not self.running():
                self._start_both()
        return self

    def hold(self) -> None:
        """Start only the holder, unless it runs, for a supervisor that sees to the daemon itself.

        Raises DaemonError.
        """
        self._paths.create()
        with self._starting():
            self._start_holder(_NOBODY)

    def succeed(self) -> None:
        """Start a daemon only where one has died and is missed. Raises DaemonError, OSError.

        One that was stopped is not missed: its holder has ended. Nor is one that served nothing.
        """
        with self._starting():
            missed = self.recorded_layers() and holder.connection(self._paths.run)
            if missed and not self.running():
                self._start_daemon()

    def running(self) -> bool:
        """Whether a daemon answers. One that was just killed may still accept connections."""
        try:
            self._ask(protocol.Ping(), protocol.Done)
        except DaemonError:
            return False
        return True

    def attach_all(
        self, layers: Sequence[protocol.Wanted], start: protocol.Start | None = None
    ) -> tuple[protocol.Attached, ...]:
        """Serve layers, to `start` an environment or otherwise; the answers are in their order.

        Their stores are asked in order, past those that lack a blob or are in trouble. Does nothing
        but put the stores first where a layer is attached already. Raises NotFoundError,
        CorruptError, StoreError; some of the layers may be attached then.
        """
        request = protocol.Attach(tuple(layers), start)
        return self._ask(request, protocol.AllAttached).layers

    def attach(
        self, layer: Descriptor, stores: Sequence[str], start: protocol.Start | None = None
    ) -> protocol.Attached:
        """The same for one layer from the stores with these URLs."""
        return self.attach_all([protocol.Wanted(layer, tuple(stores))], start)[0]

    def detach(self, digests: Iterable[Digest]) -> bool:
        """Stop serving layers; False when none was attached. What is mounted on them gives EIO."""
        return self._ask(protocol.Detach(tuple(map(str, digests))), protocol.Done).changed

    def recorded_layers(self) -> list[str]:
        """The layers (hex) that the daemon serves, or its successor will."""
        return recorded_layers(self._paths.run)

    def status(self) -> protocol.Status:
        """Who is there and what it serves."""
        return self._ask(protocol.GetStatus(), protocol.Status)

    def stats(self) -> protocol.Stats:
        """The counters."""
        return self._ask(protocol.GetStats(), protocol.Stats)

    def metrics(self) -> str:
        """The counters in Prometheus's text format."""
        return self._ask(protocol.GetMetrics(), protocol.Metrics).text

    def evict(self) -> None:
        """Drop every cached chunk (the kernel keeps its pages)."""
        self._ask(protocol.Evict(), protocol.Done)

    def save_traces(self) -> None:
        """Have what has been recorded of accesses written down."""
        self._ask(protocol.SaveTraces(), protocol.Done)

    def stop(self, *, force: bool = False) -> bool:
        """End daemon, mount and holder. False when nothing ran.

        Raises BusyError while layers are attached, also to a daemon that was killed; with `force`
        whatever is mounted on them fails from now on.
        """
        self._paths.create()
        with self._starting():
            was_running = self._end_daemon(protocol.Stop(force=force))
            if not (was_running or force):
                self._refuse_for_the_dead()
            held = holder.end(self._paths.run)
            with contextlib.suppress(OSError):
                mount.unmount(self._paths.blobs, lazy=True)
        return was_running or held

    def restart(self) -> DaemonClient:
        """Replace the daemon under live mounts: reads wait meanwhile and none fails.

        When the mount of blobfs has been taken away, it is made anew.
        """
        self._paths.create()
        with self._starting():
            self._end_daemon(protocol.Stop(handover=True))
            if mount.mounted_at(self._paths.blobs) is None:
                holder.end(self._paths.run)
        return self.ensure()

    def _ask(self, request: protocol.Request, type_: type[T]) -> T:
        try:
            with local_socket.connect(self._paths.run, "daemon.sock") as connection:
                # Only attaching depends on stores, and they have their own limits.
                connection.settimeout(None if type_ is protocol.AllAttached else ANSWER_TIMEOUT_S)
                connection.sendall(protocol.encode_request(request))
                with connection.makefile("rb") as answers:
                    line = answers.readline(protocol.MAX_LINE_BYTES)
        except OSError as error:
            raise DaemonError(
                f"the lazy file system daemon cannot be reached: {error}",
                hint="`dsec-layers daemon restart` starts it; its log is " + str(self._paths.log),
            ) from error
        if not line.endswith(b"\n"):
            raise DaemonError(
                "the lazy file system daemon ended in the middle of a request" + self._log_tail()
            )
        return protocol.decode_answer(line, type_)

    def _end_daemon(self, request: protocol.Stop) -> bool:
        if not self.running():
            return False
        pid = self.status().pid
        self._ask(request, protocol.Done)
        if not detached.wait_for_exit(pid, START_TIMEOUT_S):
            raise DaemonError(f"the daemon (process {pid}) does not end" + self._log_tail())
        return True

    def _refuse_for_the_dead(self) -> None:
        layers = self.recorded_layers()
        if layers and holder.connection(self._paths.run):
            raise BusyError(
                f"{len(layers)} layers of a killed daemon wait for its successor",
                hint="`dsec-layers daemon restart` starts it",
            )

    def _successor(self) -> list[str]:
        """What the holder starts when the daemon has died."""
        program = [sys.executable, "-P", "-m", "dsec_layers.lazyfs.successor"]
        return [*program, str(self._paths.home), self._module]

    def _start_both(self) -> None:
        """Side by side where the holder does not run: the daemon is long in loading its modules."""
        if holder.connection(self._paths.run) is not None:
            self._start_daemon()
            return
        reader, writer = os.pipe()
        try:
            with ThreadPoolExecutor(1) as pool:
                try:
                    daemon = pool.submit(self._start_daemon, reader)
                    self._start_holder(self._successor())
                finally:
                    os.close(writer)
                daemon.result()
        finally:
            os.close(reader)

    def _start_holder(self, successor: Sequence[str]) -> None:
        if holder.connection(self._paths.run) is None:
            program = [sys.executable, "-I", "-S", str(Path(holder.__file__)), str(self._paths.run)]
            self._start([*program, *successor], "holder of the FUSE connection")

    def _start_daemon(self, after: int | None = None) -> None:
        """`after`: it waits for the end of this pipe before it asks for the holder."""
        program = [sys.executable, "-m", self._module, "--home", str(self._paths.home)]
        if after is None:
            self._start(program, "daemon")
        else:
            self._start([*program, "--after-fd", str(after)], "daemon", fds=(after,))

    def _start(self, argv: Sequence[str], what: str, *, fds: Sequence[int] = ()) -> None:
        try:
            complaint = detached.start(
                argv, log=self._paths.log, timeout_s=START_TIMEOUT_S, fds=fds
            )
        except TimeoutError as error:
            raise DaemonError(
                f"the {what} is not ready after {START_TIMEOUT_S:.0f} s" + self._log_tail()
            ) from error
        if complaint is not None:
            raise DaemonError(
                f"the {what} did not start: {complaint or 'it ended at once'}" + self._log_tail()
            )

    @contextlib.contextmanager
    def _starting(self) -> Iterator[None]:
        lock = os.open(self._paths.run / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _log_tail(self) -> str:
        try:
            lines = self._paths.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        except OSError:
            return ""
        return "; its log ends: " + " | ".join(lines) if lines else ""
