"""A real edge over a home of its own: the program as a supervisor starts, kills and replaces it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dsec_runtime.sdk import DSecClient, DSecContainerRunArgs
from tests.support import sandboxes as support
from tests.support.leftovers import mounts_below

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "dsec_runtime.cli")
SERVICES = """
[services.pypi]
names = ["index.example"]
[services.npm]
names = ["packages.example"]
"""
_PATIENCE_S = 60.0


class RealEdge:
    """`dsec edge` over `home`, started and ended at will. Ready is what it notifies us of."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.options = options
        self.log = home.parent / "edge.log"
        self._notices = home.parent / "notify"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """For clients."""
        return f"unix://{self.home / 'run/edge.sock'}"

    def client(self, **options: object) -> DSecClient:
        """A client of it, not opened yet; its sandboxes end with the test, not by a lease."""
        return DSecClient(self.address, **{"lease_s": None, **options})  # type: ignore[arg-type]

    def start(self) -> None:
        """Start it and wait until it says that it serves."""
        support.agent()
        self._notices.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(str(self._notices))
            notices.settimeout(0.2)
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [*PROGRAM, "--home", str(self.home), "edge", *self.options],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "NOTIFY_SOCKET": str(self._notices)},
                )
            self._await_ready(notices)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as a supervisor does; it must end well."""
        assert self._end(signal.SIGTERM) == 0, self.log.read_text()

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        process, self.process = self.process, None
        return process.wait(_PATIENCE_S)

    def _await_ready(self, notices: socket.socket) -> None:
        assert self.process is not None
        while self.process.poll() is None:
            with contextlib.suppress(TimeoutError):
                if notices.recv(4096).startswith(b"READY=1"):
                    return
        raise AssertionError(f"the edge ended: {self.log.read_text()}")


@contextlib.contextmanager
def real_edge(*options: str) -> Iterator[RealEdge]:
    """A served home with a base; nothing of it or of its sandboxes is left afterwards."""
    with support.home() as home:
        (home / "edge").mkdir(mode=0o700)
        (home / "edge/services.toml").write_text(SERVICES)
        edge = RealEdge(home, *options)
        edge.start()
        try:
            yield edge
        finally:
            if edge.process is None:
                edge.start()
            try:
                asyncio.run(end_all(edge))
            finally:
                edge.stop()
            assert left(edge) == []


async def end_all(edge: RealEdge) -> None:
    """End all sandboxes."""
    async with edge.client() as client:
        for info in await client.list():
            await (await client.get(info.id)).stop()


def left(edge: RealEdge) -> list[str]:
    """Folders, mounts, ids and networks of sandboxes that are there and should not be."""
    run = edge.home / "run"
    folder = run / "sandboxes"
    folders = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    ids = [f"ids of {os.readlink(path)}" for path in (run / "identities").iterdir()]
    networks = [f"network of {path.name}" for path in (run / "netns/claims").glob("*")]
    mounts = [each for each in mounts_below(folder) if each != str(folder)]
    return [*folders, *mounts, *ids, *networks]


def args(**more: object) -> DSecContainerRunArgs:
    """A small container."""
    given = {
        "environment": support.BASE,
        "memory_limit_mb": 96,
        "disk_limit_mb": 64,
        "pids_limit": 64,
        **more,
    }
    return DSecContainerRunArgs(**given)  # type: ignore[arg-type]
