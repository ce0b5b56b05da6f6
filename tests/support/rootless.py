"""A user without root who can use FUSE, on any machine that lets root make a mount namespace.

He is nobody (65534), in a mount namespace of his own where /dev/fuse is open to all, as most
distributions have it, and where this Python and these sources are bound to places that he can
reach. No mount of his is seen outside, and all end with the namespace.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsec_layers.errors import DsecError
from dsec_layers.linux import procinfo
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.cli import ROOT, Ran
from tests.support.leftovers import mounts_below

NOBODY = 65534
_NSENTER = shutil.which("nsenter") or "nsenter"  # by its path: a test may hand on another PATH
_SETPRIV = shutil.which("setpriv") or "setpriv"
_SETUP = """
set -e
mknod "$1/fuse" c 10 229
chmod 666 "$1/fuse"
mount --bind "$1/fuse" /dev/fuse
mkdir "$1/python" "$1/site" "$1/source"
mount --bind "$2" "$1/python"
mount --bind "$3" "$1/site"
mount --bind "$4" "$1/source"
echo ready
exec sleep 100000
"""
# What a process of the user finds at a path: run with the path, prints one row an entry.
_WALK = """
import base64, json, os, stat, sys
from concurrent.futures import ThreadPoolExecutor
from tests.support.trees import content_digest
top = os.fsencode(sys.argv[1])
text = lambda data: base64.b64encode(data).decode()
def digest(path):
    with open(path, "rb") as file:
        return text(content_digest(file.read()))
def row(path):
    s = os.lstat(path)
    link, regular = stat.S_ISLNK(s.st_mode), stat.S_ISREG(s.st_mode)
    return {
        "path": text(path[len(top) + 1 :]), "mode": s.st_mode, "uid": s.st_uid, "gid": s.st_gid,
        "mtime_ns": s.st_mtime_ns, "size": s.st_size, "device": s.st_rdev, "ino": s.st_ino,
        "links": s.st_nlink, "target": text(os.readlink(path) if link else b""),
        "digest": digest(path) if regular else "",
        "xattrs": [[text(os.fsencode(name)), text(os.getxattr(path, name, follow_symlinks=False))]
                   for name in sorted(map(os.fsencode, os.listxattr(path, follow_symlinks=False)))],
    }
paths = [top]
for folder, folders, files in os.walk(top, onerror=lambda error: sys.exit(str(error))):
    paths += [os.path.join(folder, name) for name in [*folders, *files]]
with ThreadPoolExecutor(8) as pool:
    print(json.dumps(list(pool.map(row, paths))))
"""
_KINDS = {
    0o040000: EntryKind.DIRECTORY,
    0o100000: EntryKind.FILE,
    0o120000: EntryKind.SYMLINK,
    0o020000: EntryKind.CHAR,
    0o060000: EntryKind.BLOCK,
    0o010000: EntryKind.FIFO,
    0o140000: EntryKind.SOCKET,
}


@dataclass(frozen=True)
class User:
    """Nobody, with a home in `folder`; `holder` is the process that keeps his namespace."""

    folder: Path
    scratch: Path
    holder: int

    @property
    def home(self) -> Path:
        """His DSEC_HOME."""
        return self.folder / "home"

    def python(
        self, *words: str | Path, environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a Python of his with these arguments."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONHOME": f"{self.scratch}/python",
            "PYTHONPATH": f"{self.scratch}/source:{self.scratch}/site",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": f"{self.scratch}/python/lib",
            **(environ or {}),
        }
        return subprocess.Popen(
            [
                *(_NSENTER, f"--mount=/proc/{self.holder}/ns/mnt", f"--wd={self.folder}"),
                *(_SETPRIV, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"),
                *(f"{self.scratch}/python/bin/{version}", *map(str, words)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )

    def start(
        self, *words: str | Path, environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `dsec-layers`."""
        program = ("-m", "dsec_layers.cli", "--home", str(self.home))
        return self.python(*program, *words, environ=environ)

    def run(self, *words: str | Path, environ: Mapping[str, str] | None = None) -> Ran:
        """Run `dsec-layers` to its end."""
        return finished(self.start(*words, environ=environ))

    def __call__(self, *words: str | Path) -> str:
        """Run it; it must succeed."""
        ran = self.run(*words)
        assert ran.status == 0, ran
        return ran.text

    def json(self, *words: str | Path) -> Any:
        """What it prints with --json."""
        return json.loads(self("--json", *words))

    def fails(
        self,
        error: type[DsecError],
        *words: str | Path,
        environ: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run it; it must fail with the code of `error`."""
        ran = self.run(*words, environ=environ)
        assert ran.status == error.exit_code, ran
        assert ran.stdout == b""
        return ran

    def does(self, code: str, *words: str | Path) -> str:
        """What a piece of Python prints that must succeed."""
        ran = finished(self.python("-c", code, *words))
        assert ran.status == 0, ran
        return ran.text

    def walk(self, top: Path) -> tuple[Tree, dict[bytes, int]]:
        """The tree that he sees, read by several threads, and the link counts by path."""
        rows = json.loads(self.does(_WALK, top))
        names: dict[int, int] = {}
        for row in rows:
            names[row["ino"]] = names.get(row["ino"], 0) + 1
        links = {base64.b64decode(row["path"]): row["links"] for row in rows}
        return Tree.of(_entry(row, names[row["ino"]]) for row in rows), links

    def mounts(self) -> list[str]:
        """The FUSE mounts of ours in his namespace."""
        lines = Path(f"/proc/{self.holder}/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines if " - fuse.dsec " in line]

    def processes(self) -> list[int]:
        """The processes in his namespace, without the one that keeps it."""
        here = procinfo.mount_namespace(self.holder)
        found = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return [
            pid for pid in found if pid != self.holder and procinfo.mount_namespace(pid) == here
        ]

    def own(self, *folders: Path) -> None:
        """Give him everything below these folders."""
        for folder in folders:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def finished(child: subprocess.Popen[bytes]) -> Ran:
    """Wait for a command."""
    with child:
        stdout, stderr = child.communicate()
    return Ran(child.returncode, stdout, stderr.decode())


@contextlib.contextmanager
def user() -> Iterator[User]:
    """Nobody, for the length of a block; all his processes end with it."""
    folder = Path(tempfile.mkdtemp(prefix="dsec-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    os.chown(folder, NOBODY, NOBODY)
    scratch = folder / "bound"
    scratch.mkdir()
    scratch.chmod(0o755)
    bound = (sys.base_prefix, sysconfig.get_path("purelib"), str(ROOT))
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", _SETUP, "sh", str(scratch), *bound],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as holder:
        made = User(folder, scratch, holder.pid)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            yield made
        finally:
            for pid in made.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            holder.kill()
            holder.wait()
            assert mounts_below(folder) == [], "what is bound there must not be removed with it"
            shutil.rmtree(folder)


def _entry(row: Mapping[str, Any], names: int) -> Entry:
    kind = _KINDS[row["mode"] & 0o170000]
    device = kind in (EntryKind.CHAR, EntryKind.BLOCK)
    return Entry(
        path=base64.b64decode(row["path"]),
        kind=kind,
        mode=row["mode"] & 0o7777,
        uid=row["uid"],
        gid=row["gid"],
        mtime_ns=row["mtime_ns"],
        xattrs=tuple((_bytes(name), _bytes(value)) for name, value in row["xattrs"]),
        size=row["size"] if kind is EntryKind.FILE else 0,
        digest=_bytes(row["digest"]),
        target=_bytes(row["target"]),
        major=os.major(row["device"]) if device else 0,
        minor=os.minor(row["device"]) if device else 0,
        link_group=row["ino"] if names > 1 else 0,
    )


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
