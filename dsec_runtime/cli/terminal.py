"""A command in a sandbox, on our own standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dsec_runtime.errors import SandboxError

if TYPE_CHECKING:
    from dsec_runtime.sdk.process import Process
    from dsec_runtime.spec import ExecEnd

_PART: Final = 64 << 10


def size() -> tuple[int, int]:
    """Rows and columns of our terminal."""
    found = shutil.get_terminal_size()
    return found.lines, found.columns


async def attach(process: Process, *, interactive: bool, terminal: bool) -> ExecEnd:
    """Carry bytes both ways until the command has ended."""
    tasks = []
    with raw_mode() if terminal else contextlib.nullcontext():
        if interactive:
            tasks.append(asyncio.create_task(_input(process)))
        if terminal:
            tasks.append(asyncio.create_task(_sizes(process)))
        try:
            async for piece in process:
                out = sys.stdout if piece.stream == "stdout" else sys.stderr
                out.buffer.write(piece.data)
                out.buffer.flush()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert process.end is not None
    return process.end


@contextlib.contextmanager
def raw_mode() -> Iterator[None]:
    """Have our terminal, if we have one, pass every key on."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed ahead is not lost
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def _input(process: Process) -> None:
    """Our standard input to the command, and its end."""
    parts: asyncio.Queue[bytes] = asyncio.Queue(1)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with contextlib.suppress(RuntimeError, OSError):  # the loop, or our terminal, has gone
            while True:
                data = os.read(0, _PART)
                asyncio.run_coroutine_threadsafe(parts.put(data), loop).result()
                if not data:
                    return

    # Nobody waits for this thread, which may wait for a key for ever.
    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(SandboxError):  # the command has ended meanwhile
        while data := await parts.get():
            await process.write(data)
        await process.close_stdin()


async def _sizes(process: Process) -> None:
    """Tell the command when our terminal changes its size."""
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            with contextlib.suppress(SandboxError):
                await process.resize(*size())
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
