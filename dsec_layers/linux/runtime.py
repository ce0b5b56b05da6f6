"""Finding an OCI runtime that really runs a container on this machine, and calling it safely."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from dsec_layers.errors import CapabilityMissingError
from dsec_layers.linux import mount, process

# The runtime is process 1 of a PID namespace whose outer end dies with the thread that started it.
# When the runtime ends, for whatever reason, the kernel kills the container's processes with it:
# nothing can outlive us. `slave`: what the host unmounts meanwhile is unmounted there too.
_ENDS_WITH_US = (
    *("setpriv", "--pdeathsig=KILL", "--"),
    *("unshare", "--pid", "--fork", "--kill-child=KILL"),
    *("--mount", "--mount-proc", "--propagation=slave", "--"),
)
# crun refuses a mix of cgroup v1 and v2 that has controllers on both. In its own mount namespace it
# sees v1 only.
_HIDE_V2 = ("sh", "-c", 'umount /sys/fs/cgroup/unified && exec "$0" "$@"')

_CGROUP_PATIENCE_S = 2.0
_CGROUP_POLL_S = 0.005
_log = logging.getLogger(__name__)


class Runtime(msgspec.Struct, frozen=True):
    """An OCI runtime and how to call it."""

    program: str
    prefix: tuple[str, ...] = ()

    def command(self, bundle: Path, identifier: str, *, state: Path, log: Path) -> list[str]:
        """The words that run the container of `bundle` in the foreground.

        What goes wrong is said in `log`, as JSON lines.
        """
        return [
            *_ENDS_WITH_US,
            *self.prefix,
            self.program,
            *(f"--root={state}", f"--log={log}", "--log-format=json"),
            *("run", f"--bundle={bundle}", identifier),
        ]


def error_in_log(log: Path) -> str | None:
    """The error that ended a runtime, from its JSON log; None when the command ended by itself."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("level") in ("error", "fatal"):
            return str(entry.get("msg", line))
    return None


@functools.cache
def find_runtime() -> Runtime:
    """The first of crun and runc that runs a container here; tried once in a process.

    Raises CapabilityMissingError with what each of them said.
    """
    complaints = []
    for runtime in candidates():
        complaint = attempt(runtime)
        if complaint is None:
            return runtime
        complaints.append(f"{Path(runtime.program).name}: {complaint}")
    raise CapabilityMissingError(
        f"no OCI runtime works here: {'; '.join(complaints) or 'crun and runc are not installed'}",
        hint="install crun (apt-get install crun) or runc and run as root",
    )


def candidates() -> Iterator[Runtime]:
    """The installed runtimes, the fastest first, each in the ways of calling it that may work."""
    if crun := shutil.which("crun"):
        yield Runtime(crun)
        yield Runtime(crun, prefix=_HIDE_V2)
    if runc := shutil.which("runc"):
        yield Runtime(runc)


def attempt(runtime: Runtime) -> str | None:
    """Run `true` with the host's programs in an otherwise empty root; None, or the complaint."""
    with tempfile.TemporaryDirectory(prefix="dsec-check-") as name:
        bundle = Path(name)
        (bundle / "rootfs").mkdir()
        (bundle / "config.json").write_text(json.dumps(_probe_spec()))
        log = bundle / "log"
        command = runtime.command(
            bundle, f"dsec-check-{bundle.name[-8:]}", state=bundle / "state", log=log
        )
        finished = process.run(command, check=False, timeout_s=20)
        if finished.status == 0:
            return None
        return (
            error_in_log(log)
            or finished.stderr.decode(errors="replace").strip()
            or f"status {finished.status}"
        )


def _probe_spec() -> dict[str, object]:
    folders = (
        folder for folder in ("/bin", "/lib", "/lib32", "/lib64", "/usr") if Path(folder).exists()
    )
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/true"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
        },
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            *_read_only_binds(folders),
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
    }


def _read_only_binds(folders: Iterable[str]) -> Sequence[dict[str, object]]:
    return [
        {"destination": it, "source": it, "type": "bind", "options": ["rbind", "ro"]}
        for it in folders
    ]


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill the container that `child`, a started `Runtime.command`, runs, and see it gone.

    The runtime is process 1 of its namespace: when it has ended, all others there have. `child`
    waits for it, and would complain on our standard error about its death, so it is stopped before.
    """
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGSTOP)
    for pid in _children(child.pid):
        with contextlib.suppress(ProcessLookupError):
            _kill(pid)
    child.kill()
    child.wait()


def first_of_container(child: subprocess.Popen[bytes]) -> list[int]:
    """The first process of the container that `child` runs; none before it starts."""
    return [pid for it in _children(child.pid) for pid in _children(it)]


def _children(pid: int) -> list[int]:
    """Those that any of its threads has started."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended
            found += map(int, path.read_text().split())
    return found


def _kill(pid: int) -> None:
    """Kill a process and wait for its end. Raises ProcessLookupError when it is gone already."""
    ended = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        select.select([ended], [], [])
    finally:
        os.close(ended)


def remove_cgroups(name: str) -> None:
    """Remove the cgroups that a killed runtime left of the container `name`.

    The kernel lets go of a cgroup a moment after its last process has ended.
    """
    points = (it.target for it in mount.mount_points() if it.filesystem in ("cgroup", "cgroup2"))
    left = [path for point in points if (path := Path(point, name)).is_dir()]
    give_up = time.monotonic() + _CGROUP_PATIENCE_S
    while left := [path for path in left if not _removed(path)]:
        if time.monotonic() > give_up:
            _log.warning("cannot remove %s", ", ".join(map(str, left)))
            return
        time.sleep(_CGROUP_POLL_S)


def _removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
