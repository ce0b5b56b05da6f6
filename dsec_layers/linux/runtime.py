"""Finding an OCI runtime that really runs a container on this machine, and calling it safely."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsec_layers.errors import CapabilityMissingError
from dsec_layers.linux import mount, process
from dsec_layers.linux.json_types import JsonObject

# The runtime is process 1 of a PID namespace whose outer end dies with the thread that started it.
# When the runtime ends, for whatever reason, the kernel kills the container's processes with it:
# nothing can outlive us. `slave`: what the host unmounts meanwhile is unmounted there too.
_ENDS_WITH_US = (
    *("setpriv", "--pdeathsig=KILL", "--"),
    *("unshare", "--pid", "--fork", "--kill-child=KILL"),
    *("--mount", "--mount-proc", "--propagation=slave", "--"),
)
# crun 1.8 refuses some mixes of cgroup v1 and v2 even when told to make no cgroup. In its own mount
# namespace it sees none.
_HIDE_CGROUPS = ("sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"')


@dataclass(frozen=True, slots=True)
class Runtime:
    """An OCI runtime and how to call it; some make a cgroup named after the container."""

    program: str
    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    makes_cgroups: bool = False

    def command(self, bundle: Path, identifier: str, *, state: Path, log: Path) -> list[str]:
        """The words that run the container of `bundle` in the foreground.

        What goes wrong is said in `log`, as JSON lines.
        """
        return [
            *_ENDS_WITH_US,
            *self.prefix,
            *(self.program, *self.options),
            *(f"--root={state}", f"--log={log}", "--log-format=json"),
            *("run", f"--bundle={bundle}", identifier),
        ]

    def settings(self, identifier: str) -> JsonObject:
        """What the configuration's `linux` part needs for this runtime: no device of the host."""
        if not self.makes_cgroups:
            return {}
        rules: Sequence[JsonObject] = [
            {"allow": False, "access": "rwm"},
            {"allow": True, "type": "c", "access": "m"},
            {"allow": True, "type": "b", "access": "m"},
        ]
        return {"cgroupsPath": f"/{identifier}", "resources": {"devices": rules}}


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
        if entry.get("level") in ("error", "fatal"):
            return str(entry.get("msg", line))
    return None


@functools.cache
def find_runtime() -> Runtime:
    """The first of crun and runc that runs a container here; tried once in a process.

    Raises CapabilityMissingError with what each of them said.
    """
    complaints = []
    for runtime in _candidates():
        complaint = _try(runtime)
        if complaint is None:
            return runtime
        complaints.append(f"{Path(runtime.program).name}: {complaint}")
    raise CapabilityMissingError(
        f"no OCI runtime works here: {'; '.join(complaints) or 'crun and runc are not installed'}",
        hint="install crun (apt-get install crun) or runc and run as root",
    )


def _candidates() -> Iterator[Runtime]:
    if crun := shutil.which("crun"):
        without_cgroup = ("--cgroup-manager=disabled",)
        yield Runtime(crun, options=without_cgroup)
        yield Runtime(crun, prefix=_HIDE_CGROUPS, options=without_cgroup)
    if runc := shutil.which("runc"):
        yield Runtime(runc, makes_cgroups=True)


def _try(runtime: Runtime) -> str | None:
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

    The runtime is process 1 of its namespace and `child` waits for it. So when `child` ends, all
    other processes of the namespace have ended.
    """
    if child.poll() is not None:
        return
    try:
        first = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    except OSError:  # this kernel does not tell
        first = []
    for pid in map(int, first):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if first:
        child.wait()


def remove_cgroups(name: str) -> None:
    """Remove the empty cgroups that a killed runtime left of the container `name`."""
    for point in mount.mount_points():
        if point.filesystem in ("cgroup", "cgroup2"):
            with contextlib.suppress(OSError):
                Path(point.target, name).rmdir()
