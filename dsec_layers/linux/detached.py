"""Starting background processes that outlive their starter, and learning when they are ready."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

READY = b"ready\n"


def start(
    argv: Sequence[str], *, log: Path, timeout_s: float, fds: Sequence[int] = ()
) -> str | None:
    """Run `argv --ready-fd N`, output appended to `log`, and wait for a word on that descriptor.

    It inherits the descriptors `fds` too.

    The program says `ready` (`say`) or what went wrong, closes the descriptor and goes on by
    itself, no longer a child of the caller (`leave_parent`). Returns None when it is ready, else
    its complaint, empty when it ended without one. Raises TimeoutError when it has said nothing
    after `timeout_s`; if it has left its parent by then it goes on, and may be ready later.
    """
    reader, writer = os.pipe()
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                [*argv, "--ready-fd", str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                pass_fds=(writer, *fds),
                start_new_session=True,
            )
        os.close(writer)
        writer = -1
        try:
            word = _read_to_end(reader, time.monotonic() + timeout_s)
        except TimeoutError:
            child.kill()
            raise
        finally:
            child.wait()
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    return None if word == READY else word.decode(errors="replace").strip()


def leave_parent() -> None:
    """Go on as a child of init in a session of its own; the process that was started ends.

    To be called before there is any thread.
    """
    if os.fork():
        os._exit(0)
    os.setsid()


def say(fd: int, word: bytes) -> bool:
    """Tell the starter `word` (READY or a complaint) and close the descriptor.

    False when the starter has gone: it lost patience, or was interrupted.
    """
    try:
        os.write(fd, word)
    except BrokenPipeError:
        return False
    finally:
        os.close(fd)
    return True


def wait_for_end(fd: int) -> None:
    """Wait until the other end of the pipe `fd` is closed, by whoever or his death; close it."""
    try:
        while os.read(fd, 1):
            pass
    finally:
        os.close(fd)


def wait_for_exit(pid: int, timeout_s: float) -> bool:
    """Whether the process `pid`, any process, is gone within `timeout_s`."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(pidfd)


def _read_to_end(fd: int, deadline: float) -> bytes:
    word = b""
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("no word from the new process")
        piece = os.read(fd, 4096)
        if not piece:
            return word
        word += piece
