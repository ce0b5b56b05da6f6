"""The step cache: results of steps on disk, and the folders in which steps are carried out.

    <folder>/
        steps/<key>.json     which result a key has; appears whole, when the result is durable;
                         its time is that of the last use
        results/             locked (flock, shared) by every build that may use one of them
        results/<id>/        what a step changed: an overlay upper, never written again
        work/<id>/           a step in the making, locked (flock) by the process that does it
            upper/ work/     the overlay's own
            root/            where it is mounted
            stubs/           mount points for the container, below all layers
            spool/           files given by here-documents

A result has an identity, on which the keys of later steps build. A step that gives the same for
the same key has the key as its identity; each run of a command has one of its own, because what
was built on another run of it must not be mixed with it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dsec_layers.builder.kept import Kept, disk_bytes
from dsec_layers.errors import CorruptError
from dsec_layers.linux import claim, container, mount, syscalls
from dsec_layers.model import canonical

_AGE_NS = 1_000_000  # far more than file systems tell apart


class _Record(msgspec.Struct, frozen=True):
    result: str
    identity: str
    title: str
    size_bytes: int | None = None  # on disk


class Result(msgspec.Struct, frozen=True):
    """What a step changed, as an overlay upper."""

    identity: str
    upper: Path


class WorkFolder(msgspec.Struct, frozen=True):
    """The folders of a step in the making."""

    path: Path

    @property
    def upper(self) -> Path:
        """What the step changes."""
        return self.path / "upper"

    @property
    def work(self) -> Path:
        """The overlay's own folder."""
        return self.path / "work"

    @property
    def root(self) -> Path:
        """Where the root file system of the step is mounted."""
        return self.path / "root"

    @property
    def stubs(self) -> Path:
        """The lowest layer."""
        return self.path / "stubs"

    @property
    def spool(self) -> Path:
        """Room for files that are not yet in the root."""
        return self.path / "spool"


class StepCache:
    """The cache below one folder. Builds of several processes share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def find(self, key: str) -> Result | None:
        """The result of a key, which is now used, or None."""
        record = self._read(self._record(key))
        if record is None:
            return None
        upper = self._folder / "results" / record.result
        if not upper.is_dir():
            return None
        with contextlib.suppress(FileNotFoundError):  # it may just have been forgotten
            os.utime(self._record(key))
        return Result(record.identity, upper)

    def mark_used(self, keys: Sequence[str]) -> None:
        """These steps of one build, in their order, were used now.

        The first ones count as used last: without them nobody finds those that follow.
        """
        now_ns = time.time_ns()
        for age, key in enumerate(keys):
            with contextlib.suppress(FileNotFoundError):
                used_ns = now_ns - age * _AGE_NS
                os.utime(self._record(key), ns=(used_ns, used_ns))

    def kept(self) -> Iterator[Kept]:
        """All results by key, and by their own name those that belong to no key any more."""
        nameless = {path.name: path for path in self._listed("results", "*")}
        for path in self._listed("steps", "*.json"):
            record = self._read(path)
            upper = nameless.pop(record.result, None) if record else None
            if record and upper:
                used_s = path.stat().st_mtime
                size = disk_bytes(upper) if record.size_bytes is None else record.size_bytes
                yield Kept("step", path.stem, record.title, size, used_s)
        for name, path in nameless.items():
            yield Kept("step", name, "", disk_bytes(path), 0)

    def forget(self, keys: Sequence[str]) -> bool:
        """Let no later build find the results of `keys`, and remove them with all nameless ones.

        False when nothing was removed because a build is running.
        """
        for key in keys:
            self._record(key).unlink(missing_ok=True)
        results = self._folder / "results"
        if not results.is_dir():
            return True
        with claim.opened(results) as fd:
            return self._tidy(fd, results)

    def _listed(self, folder: str, pattern: str) -> list[Path]:
        return sorted((self._folder / folder).glob(pattern))

    def publish(
        self, key: str, folder: WorkFolder, *, title: str, identity: str | None, replace: bool
    ) -> Result:
        """Make the upper of `folder` the result of `key` and return the result that now counts.

        Without `replace` that is another one when somebody was faster. Without `identity` it gets
        one of its own. Raises OSError.
        """
        name = secrets.token_hex(16)
        upper = self._folder / "results" / name
        upper.parent.mkdir(parents=True, exist_ok=True)
        folder.upper.rename(upper)
        record = _Record(name, identity or name, title, disk_bytes(upper))
        counts = False
        try:
            with claim.opened(upper) as fd:
                syscalls.syncfs(fd)
            counts = self._write(key, canonical.encode(record), replace=replace)
            if not counts and (found := self.find(key)):
                return found
            # What stands there is damaged, or its result was removed.
            counts = counts or self._write(key, canonical.encode(record), replace=True)
        finally:
            if not counts:
                claim.remove(upper)
        return Result(record.identity, upper)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold on to the results until the context ends.

        Those that no record names, because they were replaced or their build was killed, are
        removed first, unless another build holds on to them.
        """
        results = self._folder / "results"
        results.mkdir(parents=True, exist_ok=True)
        with claim.opened(results) as fd:
            self._tidy(fd, results)
            fcntl.flock(fd, fcntl.LOCK_SH)
            yield

    def _tidy(self, fd: int, results: Path) -> bool:
        """Remove results that no record names, unless a build holds on to them: then False."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._remove_nameless(results)
        return True

    def _remove_nameless(self, results: Path) -> None:
        steps = self._folder / "steps"
        for half_written in steps.glob(".*"):
            half_written.unlink(missing_ok=True)
        records = (self._read(path) for path in steps.glob("*.json"))
        named = {record.result for record in records if record is not None}
        for path in results.iterdir():
            if path.name not in named:
                claim.remove(path)

    @contextlib.contextmanager
    def working(self) -> Iterator[WorkFolder]:
        """A new folder for one step; it is removed when the context ends."""
        with claim.new_folder(self._folder / "work") as path:
            folder = WorkFolder(path)
            for part in (folder.upper, folder.work, folder.root, folder.stubs, folder.spool):
                part.mkdir()
                part.chmod(0o755)  # whatever the umask: one becomes the root of the layer
            yield folder

    def sweep(self) -> None:
        """Unmount and remove what killed builds left; folders of running ones are not touched."""
        claim.sweep(self._folder / "work", discard=_discard)

    def _record(self, key: str) -> Path:
        return self._folder / "steps" / f"{key}.json"

    def _read(self, path: Path) -> _Record | None:
        try:
            return canonical.decode(path.read_bytes(), _Record, what="step record")
        except (FileNotFoundError, CorruptError):  # a damaged record is a step not done
            return None

    def _write(self, key: str, data: bytes, *, replace: bool) -> bool:
        """Write the record of a key; False when there is one and it is not to be replaced."""
        path = self._record(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{key}-{secrets.token_hex(4)}")
        try:
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                aside.replace(path)
                return True
            try:
                path.hardlink_to(aside)
            except FileExistsError:
                return False
            return True
        finally:
            aside.unlink(missing_ok=True)


def _discard(path: Path) -> None:
    folder = WorkFolder(path)
    unmount(folder.root)
    container.remove_stale(folder.spool)
    claim.remove(path)


def unmount(target: Path) -> None:
    """Take a mount away if there is one, even when a stranger is looking at it."""
    if mount.mounted_at(target.resolve()) is None:
        return
    try:
        mount.unmount(target)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        mount.unmount(target, lazy=True)
