"""Starting a container with an OCI runtime so that it outlives us, and is never out of our hands.

The runtime reads its configuration from a pipe, and gets it only when its process is in the group
of the sandbox: whoever is killed meanwhile, either nothing was started or the group has it all. It
sees a bundle whose config.json is a link to the descriptor, the same for all.

crun and runc run only what no container can write to: a program on a disk they copy or mount
anew and execute a second time, for each container. A sealed copy, made once, they run as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.linux.runtime import error_in_log
from dsec_runtime.errors import CreationFailedError, UnsupportedError
from dsec_runtime.linux.launcher import Launch

_FIRST_PASSED: Final = 3
_HIGH: Final = 64  # above all numbers that a child gives to descriptors
_TIMEOUT_S: Final = 60.0
# Without its own cgroups: these are ours. runc has no such switch, and joins what `cgroup` names.
_OPTIONS: Final = {"crun": ("--cgroup-manager=disabled",)}
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MFD_EXEC: Final = 0x10  # include/uapi/linux/memfd.h; older kernels do not know it, nor need it


class OciRuntime(msgspec.Struct, frozen=True):
    """A program that runs bundles, called as crun and runc are."""

    program: str

    @property
    def joins_groups(self) -> bool:
        """Whether it puts the container into the cgroup that the configuration names."""
        return Path(self.program).name not in _OPTIONS

    @property
    def binds_in_proc(self) -> bool:
        """Whether it mounts what it is told to below /proc; runc does but for a few files."""
        return Path(self.program).name == "crun"

    def run(
        self,
        name: str,
        config: bytes,
        place: Place,
        *,
        passed: Sequence[int],
        launch: Launch,
        entered: Callable[[int], None],
    ) -> int:
        """Start a container whose first process has the descriptors `passed` from 3 on; its pid.

        `launch` starts the runtime, where it is to run. `entered` is called with its pid before it
        knows what to do. Raises CreationFailedError with the runtime's complaint, and what
        `entered` raises.
        """
        source, sink = os.pipe2(os.O_CLOEXEC)
        with os.fdopen(sink, "wb", buffering=0) as pipe:
            try:
                pid = launch(lambda: self._spawn(name, place, [*passed, source]))
            finally:
                os.close(source)
            try:
                entered(pid)
                with contextlib.suppress(BrokenPipeError):  # then its status tells why
                    pipe.write(config)
            except BaseException:
                pipe.close()
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
        status = _wait(pid)
        if status:
            said = error_in_log(place.log) or f"status {status}"
            raise CreationFailedError(f"{Path(self.program).name} does not start it: {said}")
        return int(place.pid.read_text())

    def _spawn(self, name: str, place: Place, descriptors: Sequence[int]) -> int:
        words = [
            *(self.program, f"--root={place.state}", f"--log={place.log}", "--log-format=json"),
            *_OPTIONS.get(Path(self.program).name, ()),
            *("run", "--detach", f"--bundle={place.bundle}", f"--pid-file={place.pid}"),
            *(f"--preserve-fds={len(descriptors) - 1}", name),
        ]
        # Runtimes give the standard streams to the container's root, and /dev/null is the node's.
        with _moved_up([*[_nothing()] * _FIRST_PASSED, *descriptors]) as high:
            actions = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(high)]
            program = _sealed(self.program)
            return os.posix_spawn(program, words, _ENVIRONMENT, file_actions=actions, setsid=True)


class Place(msgspec.Struct, frozen=True):
    """Where a container's files are: its bundle, the runtime's state, its log and the pid."""

    bundle: Path
    state: Path
    log: Path
    pid: Path


def make_bundle(folder: Path, passed: int) -> None:
    """The bundle of all containers that get `passed` descriptors."""
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    link = folder / "config.json"
    with contextlib.suppress(FileExistsError):
        link.symlink_to(f"/proc/self/fd/{_FIRST_PASSED + passed}")


def find(name: str | None = None) -> OciRuntime:
    """The runtime of this name or path; without one crun, else runc. Raises UnsupportedError."""
    for candidate in (name,) if name else ("crun", "runc"):
        if found := shutil.which(candidate):
            return OciRuntime(found)
    raise UnsupportedError(
        f"there is no OCI runtime {name or 'crun or runc'} here", hint="apt-get install crun"
    )


_ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@functools.cache
def _nothing() -> int:
    """A descriptor of a file that is empty and stays so."""
    fd = os.memfd_create("nothing", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


@functools.cache
def _sealed(program: str) -> str:
    """The path of a copy of `program` that cannot be written to; its own where that is no help."""
    name = Path(program).name
    if name not in ("crun", "runc"):
        return program
    content = Path(program).read_bytes()
    if not content.startswith(b"\x7fELF"):  # a script, which is to be read by its path
        return program
    for flag in (_MFD_EXEC, 0):
        with contextlib.suppress(OSError):  # this kernel forbids it or does not know the flag
            return f"/proc/self/fd/{_sealed_file(name, content, flag)}"
    return program


def _sealed_file(name: str, content: bytes, flag: int) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flag)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def _moved_up(descriptors: Sequence[int]) -> Iterator[list[int]]:
    moved: list[int] = []
    try:
        for fd in descriptors:
            moved.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH))  # noqa: PERF401 # or leaks
        yield moved
    finally:
        for fd in moved:
            os.close(fd)


def _wait(pid: int) -> int:
    """The exit status. Raises CreationFailedError when it does not end in time."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(handle, select.POLLIN)
        ended = poll.poll(_TIMEOUT_S * 1000)
        if not ended:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    _, status = os.waitpid(pid, 0)
    if not ended:
        raise CreationFailedError(f"the OCI runtime did not end within {_TIMEOUT_S:.0f} s")
    return os.waitstatus_to_exitcode(status)
