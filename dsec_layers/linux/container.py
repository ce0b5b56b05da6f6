"""Running one command to its end in a container on a mounted root file system.

The container has its own processes, mounts, IPC and host name, and by request no network. It is
over when its first process ends: background children die with it, and all of it dies with us.

On disk, below the folder that the caller names:

    container-XXXXXXXX/    locked (flock) by the process that runs the container
        config.json        the OCI configuration
        state/             the runtime's own state
        log                the runtime's complaints, JSON lines
        resolv.conf hosts  lent to the command, lost with it

A folder whose lock is free was left by a process that was killed; `remove_stale` removes it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.linux import attend, claim, inroot, mountpoints, runtime
from dsec_layers.linux.ocispec import Bind, Command, specification
from dsec_layers.linux.users import find_user

NOT_EXECUTABLE, NOT_FOUND = 126, 127
PREFIX = "container-"  # of folders and cgroups


class Finished(msgspec.Struct, frozen=True):
    """How a command ended: its exit status, 128 + signal when killed, and its last output.

    `tail` is at most 4 KiB; it is empty when the output went to ours. `complaint` says why there
    was no command at all, after status 126 or 127 of the runtime's own.
    """

    status: int
    tail: bytes
    complaint: str = ""


def run(
    command: Command,
    folder: Path,
    *,
    on_output: Callable[[bytes], None] | None = None,
    on_error: Callable[[bytes], None] | None = None,
    cancelled: threading.Event | None = None,
    by: runtime.Runtime | None = None,
) -> Finished:
    """Run `command` and wait for its end; nothing of it is left when this returns or raises.

    Its output goes to `on_output`, standard error among it unless `on_error` takes that (crun keeps
    their order, runc roughly); without `on_output` both are ours. `folder` holds what the run needs
    on disk. When `cancelled` is set, from another thread, the container is killed and
    InterruptedError raised. `by` is the runtime to use instead of the first that works.

    Like a shell, this gives status 127 for a program that does not exist and 126 for one that
    cannot be run. Raises CapabilityMissingError without an OCI runtime, InvalidInputError for an
    unknown user or working directory, DsecError when the container cannot be made.
    """
    found = by or runtime.find_runtime()
    user = find_user(command.rootfs, command.user or "0")
    _check_cwd(command)
    with (
        claim.new_folder(folder, PREFIX, _discard) as bundle,
        mountpoints.present(command.rootfs, command.binds),
    ):
        lent = _lend_network_files(command, bundle)
        content = specification(command, user, [*lent, *command.binds], cgroup=bundle.name)
        (bundle / "config.json").write_text(json.dumps(content))
        log = bundle / "log"
        words = found.command(bundle, bundle.name, state=bundle / "state", log=log)
        status, tail = attend.attend(
            words,
            tty=command.tty,
            inherit_input=command.stdin == "inherited",
            on_output=on_output,
            on_error=on_error,
            cancelled=cancelled,
        )
        complaint = runtime.error_in_log(log) if status else None
    return Finished(status, tail) if complaint is None else _judge(command, complaint)


def remove_stale(folder: Path) -> None:
    """Remove what killed processes left in `folder`; running containers are not touched."""
    claim.sweep(folder, f"{PREFIX}*", _discard)


def _discard(bundle: Path) -> None:
    runtime.remove_cgroups(bundle.name)
    claim.remove(bundle)


def _check_cwd(command: Command) -> None:
    below_bind = any(Path(command.cwd).is_relative_to(bind.target) for bind in command.binds)
    if not command.cwd.startswith("/"):
        raise InvalidInputError(f"the working directory {command.cwd!r} is not an absolute path")
    if not below_bind and not inroot.locate(command.rootfs, command.cwd).is_dir():
        raise InvalidInputError(f"the working directory {command.cwd} does not exist")


def _lend_network_files(command: Command, bundle: Path) -> list[Bind]:
    """Copies of the host's resolver and hosts files; the command may write to them, we forget it.

    The links that lead to them in the root file system are followed here, for the runtimes differ.
    """
    host = command.network == "host"
    contents = {
        mountpoints.RESOLVER: _read_host(mountpoints.RESOLVER) if host else b"",
        mountpoints.HOSTS: (_read_host(mountpoints.HOSTS) if host else b"127.0.0.1 localhost\n")
        + f"127.0.1.1 {command.hostname}\n".encode(),
    }
    lent = []
    for target, content in contents.items():
        copy = bundle / Path(target).name
        copy.write_bytes(content)
        copy.chmod(0o644)
        lent.append(Bind(copy, inroot.resolve(command.rootfs, target), read_only=False))
    return lent


def _read_host(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return b""
    return content if content.endswith(b"\n") else content + b"\n"


def _judge(command: Command, complaint: str) -> Finished:
    program = command.argv[0]
    if re.search(r"exec.*(not found|no such file)", complaint, re.IGNORECASE):
        return _unstarted(NOT_FOUND, f"{program}: not found")
    if re.search(r"exec.*(permission denied|not permitted)", complaint, re.IGNORECASE):
        return _unstarted(NOT_EXECUTABLE, f"{program}: permission denied")
    raise DsecError(f"the container for {program} cannot be made: {complaint}")


def _unstarted(status: int, complaint: str) -> Finished:
    return Finished(status, f"{complaint}\n".encode(), complaint)
