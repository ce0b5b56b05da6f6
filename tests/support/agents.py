"""The agent in a PID namespace of this machine, listening on a socket below a temporary folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from dsec_runtime.channel import Channel
from dsec_runtime.guest import binary

_PATIENCE_S = 100.0  # a test has 120


class Agent:
    """`pid` is that of the agent, as seen from here."""

    def __init__(self, path: Path, child: subprocess.Popen[bytes]) -> None:
        self.socket = path
        self._child = child
        self.pid = _first_child(child.pid)

    def processes(self) -> list[int]:
        """All processes of its namespace but itself, as seen from here."""
        namespace = os.readlink(f"/proc/{self.pid}/ns/pid")
        return [pid for pid in _pids() if pid != self.pid and _namespace(pid) == namespace]

    def kill(self) -> None:
        """Kill the agent, and by that the namespace."""
        if self._child.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it has ended; its status."""
        return self._child.wait(_PATIENCE_S)


@contextlib.contextmanager
def running(folder: Path, *options: str, prefix: Sequence[str] = ()) -> Iterator[Agent]:
    """An agent with these options; `prefix` is a program that executes it within the namespace."""
    path = folder / "agent.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        with first_process([*prefix, str(binary.path()), *options], listener) as child:
            listener.close()
            yield Agent(path, child)


@contextlib.contextmanager
def first_process(words: Sequence[str], passed: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """`unshare` with a program that is the first process of a namespace and has `passed` as 3."""
    begin = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--mount-proc"]
    number = passed.fileno()
    script = 'exec "$@"' if number == 3 else f'exec "$@" 3<&{number} {number}<&-'
    child = subprocess.Popen(
        ["bash", "-c", script, "agent", *begin, *words], pass_fds=[passed.fileno()]
    )
    first = None
    try:
        first = _first_child(child.pid)
        yield child
    finally:
        # unshare's own way to end it is lost when the agent changes its user.
        if first is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and unshare will
                os.kill(first, signal.SIGKILL)
        child.kill()
        child.wait()


def _first_child(pid: int) -> int:
    while not (text := Path(f"/proc/{pid}/task/{pid}/children").read_text()):
        os.sched_yield()
    return int(text.split()[0])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def talk(agent: Agent, life: Callable[[Channel], Awaitable[None]]) -> None:
    """Run a coroutine with a channel to the agent, with an end."""

    async def connected() -> None:
        channel = await Channel.connect(agent.socket)
        try:
            await life(channel)
        finally:
            channel.close()
            # The transport closes with the next turn of the loop.
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(connected(), _PATIENCE_S))
