"""The one place where programs are started.

A clean environment, a debug line to paste, captured output, and an end.

A child gets its own process group and dies with its parent; when the caller is interrupted the
whole group is ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from dsec_layers.errors import CapabilityMissingError, DsecError

_log = logging.getLogger(__name__)


class Completed(msgspec.Struct, frozen=True):
    """What a finished program left.

    Exit status (128 + signal when killed) and its captured output.
    """

    status: int
    stdout: bytes
    stderr: bytes


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    check: bool = True,
    timeout_s: float | None = None,
) -> Completed:
    """Run a program to its end and capture its output.

    Raises CapabilityMissingError when the program is not installed, DsecError when `check` and it
    fails (the message ends with the last lines of its output) and TimeoutError after `timeout_s`,
    when the whole group has been killed.
    """
    with start(
        argv, env=env, cwd=cwd, stdin=subprocess.PIPE if stdin is not None else None
    ) as child:
        try:
            stdout, stderr = child.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{argv[0]} did not end within {timeout_s} s") from error
    status = child.returncode if child.returncode >= 0 else 128 - child.returncode
    if check and status:
        tail = (stderr or stdout).decode(errors="replace").strip().splitlines()[-5:]
        raise DsecError(f"{argv[0]} failed with status {status}: {' | '.join(tail)}")
    return Completed(status, stdout, stderr)


@contextlib.contextmanager
def start(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | None = None,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
    own_session: bool = True,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program and yield its Popen; at exit it is killed if it still runs.

    In a session of its own (the default) its whole process group is killed. `stdin` is empty unless
    a descriptor is given. Raises CapabilityMissingError when the program is not installed.
    """
    words = [os.fspath(word) for word in argv]
    _log.debug("run: %s", shlex.join(words))
    try:
        child = subprocess.Popen(
            words,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=own_session,
        )
    except FileNotFoundError as error:
        raise CapabilityMissingError(
            f"{words[0]} is not installed", hint=f"install the package of {words[0]}"
        ) from error
    try:
        yield child
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL) if own_session else child.kill()
            child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
