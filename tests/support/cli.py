"""The command line as a user meets it: real processes over a home of their own.

A `Cli` runs `dsec-layers --home FOLDER/home ...`. When a test is over, what it mounted is
unmounted, and nothing else may be left: no mount, no process, no half-done work.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dsec_layers.api import composing, importing
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import BusyError, DsecError
from dsec_layers.linux import mount
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import transfer
from dsec_layers.registry.directory import DirectoryStore
from tests.support.leftovers import mounts_below
from tests.support.packed import pack_files
from tests.support.rootfs import make_rootfs

ROOT = Path(__file__).parents[2]
BASE = "base/small:1"
_PATIENCE_S = 100  # a container that runs meanwhile may have copied all mounts
_DAEMON = re.compile(r"-m dsec_layers\.daemon |lazyfs/holder\.py ")
PROGRAM = (sys.executable, "-m", "dsec_layers.cli")


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output."""
        return self.stdout.decode()

    @property
    def error(self) -> str:
        """What stands behind the only `error: ` on standard error."""
        found = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        assert len(found) == 1, self.stderr
        assert "Traceback" not in self.stderr
        return found[0].removeprefix("error: ")

    @property
    def hint(self) -> str:
        """What stands behind the only `hint: `, in the line after the error; else nothing."""
        lines = self.stderr.splitlines()
        found = [number for number, line in enumerate(lines) if line.startswith("hint: ")]
        if not found:
            return ""
        assert found == [len(lines) - 1]
        return lines[-1].removeprefix("hint: ")


@dataclass
class Cli:
    """The command line over the home in `folder`."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """DSEC_HOME."""
        return self.folder / "home"

    @property
    def bench(self) -> Workbench:
        """The same home in this process."""
        return Workbench(self.home)

    @contextlib.contextmanager
    def start(
        self, *words: str | Path, home: Path | None = None, prefix: Sequence[str] = ()
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command, with pipes; its end is awaited, and hastened when the test fails."""
        keep = {key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH") if key in os.environ}
        with subprocess.Popen(
            [*prefix, *PROGRAM, "--home", str(home or self.home), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**keep, "HOME": str(self.folder), **self.environ},
        ) as child:
            try:
                yield child
            except BaseException:
                child.kill()
                raise

    def run(
        self,
        *words: str | Path,
        stdin: bytes = b"",
        home: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> Ran:
        """Run a command to its end, however it ends."""
        with self.start(*words, home=home, prefix=prefix) as child:
            stdout, stderr = child.communicate(stdin)
        return Ran(child.returncode, stdout, stderr.decode())

    def __call__(self, *words: str | Path, stdin: bytes = b"") -> str:
        """Run a command that must succeed, and return its standard output."""
        ran = self.run(*words, stdin=stdin)
        assert ran.status == 0, ran
        return ran.text

    def json(self, *words: str | Path) -> Any:
        """The document that a command prints with --json, which must succeed."""
        return json.loads(self("--json", *words))

    def fails(
        self,
        error: type[DsecError],
        *words: str | Path,
        stdin: bytes = b"",
        home: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> Ran:
        """Run a command that must fail with the code of `error` and print nothing else."""
        ran = self.run(*words, stdin=stdin, home=home, prefix=prefix)
        assert ran.status == error.exit_code, ran
        assert ran.stdout == b""
        assert ran.error
        return ran

    def stop_daemon(self, home: Path | None = None) -> Any:
        """End the daemon when the kernel has let go of all layers; the document of `daemon stop`.

        Any container that starts somewhere on this machine copies all mounts for a moment.
        """
        give_up = time.monotonic() + _PATIENCE_S
        while (ran := self.run("--json", "daemon", "stop", home=home)).status:
            assert ran.status == BusyError.exit_code, ran
            assert time.monotonic() < give_up, ran
        return json.loads(ran.text)

    def pull(self, store: DirectoryStore, reference: str = BASE) -> None:
        """Get a layer into the home, without a process."""
        transfer.copy(Reference.parse(reference), store, self.bench.local)

    def add(self, reference: str, files: Mapping[str, str]) -> None:
        """A layer of these files, over the base when it is not one itself."""
        parsed = Reference.parse(reference)
        is_base = parsed.kind is Kind.BASE
        base = None if is_base else self.bench.resolve(Reference.parse(BASE))
        data = {path: text.encode() for path, text in files.items()}
        pack_files(self.bench, parsed, data, base=base)

    def compose(self, reference: str, *parts: str) -> None:
        """An environment."""
        composing.compose(self.bench, [*map(Reference.parse, parts)], Reference.parse(reference))

    def tags(self) -> list[str]:
        """What is in the local store."""
        return [str(reference) for reference, _ in self.bench.local.tags()]

    def leftovers(self) -> list[str]:
        """Mounts, half-done work and processes that should have gone; the daemon may stay."""
        work = ("making", "builder/work", "run/containers", "run/rootfs", "run/journal")
        found = [path for place in work for path in (self.home / place).glob("*")]
        found += (self.home / "store").rglob("tmp-*")
        usual = (str(self.folder), str(self.home / "run/blobs"))
        mounts = [path for path in mounts_below(self.folder) if path not in usual]
        layers = str(self.home / "run/layers")
        return [
            *map(str, found),
            *(path for path in mounts if not path.startswith(layers)),
            *(words for words in processes_with(str(self.folder)) if not _DAEMON.search(words)),
        ]

    def close(self) -> None:
        """End all that there may be, and complain about what a test left."""
        try:
            if self.home.exists() and (self.home / "run").exists():
                self.run("umount", "--all", "--lazy")
                left = self.leftovers()
                stopped = self.run("daemon", "stop", "--force")
                assert left == []
                assert stopped.status == 0, stopped
                # A successor that the holder started while the daemon ended finds nothing to do.
                give_up = time.monotonic() + _PATIENCE_S
                while (running := processes_with(str(self.folder))) and time.monotonic() < give_up:
                    time.sleep(0.05)
                assert running == [], running
        finally:
            for pid in pids_with(str(self.folder)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for target in reversed(mounts_below(self.folder)):
                mount.unmount(Path(target), lazy=True)
            shutil.rmtree(self.folder)


def pids_with(text: str) -> list[int]:
    """The processes, besides this one, with `text` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if os.fsencode(text) in path.read_bytes():
                found.append(int(path.parent.name))
    return [pid for pid in found if pid != os.getpid()]


def processes_with(text: str) -> list[str]:
    """Their command lines."""
    found = []
    for pid in pids_with(text):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """A plain tar of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture(scope="session")
def base_store(tmp_path_factory: pytest.TempPathFactory) -> DirectoryStore:
    """A store with a small base that has a shell; nothing may change it."""
    folder = tmp_path_factory.mktemp("base")
    make_rootfs(folder / "root")
    bench = Workbench(folder / "home")
    importing.import_(bench, str(folder / "root"), Reference.parse(BASE))
    return bench.local


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A command line over a home that does not exist yet, on a disk file system."""
    made = Cli(
        Path(tempfile.mkdtemp(prefix="dsec-test-", dir="/var/tmp")).resolve(),
        {"PYTHONPYCACHEPREFIX": str(tmp_path_factory.getbasetemp() / "pycache")},
    )
    yield made
    made.close()


@pytest.fixture
def cli(bare: Cli, base_store: DirectoryStore) -> Cli:
    """The same with a base in its store."""
    bare.pull(base_store)
    return bare
