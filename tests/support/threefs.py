"""A ledger of what is done to the files below a folder, held against what 3FS asks of a store.

A mounted 3FS looks like any file system; what it is bad at shows in a count of calls only.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Written:
    """What was done to one file that was opened for writing."""

    sizes: list[int] = field(default_factory=list)
    unsynced: bool = False
    writers: int = 0


@dataclass
class Ledger:
    """What happened below `root`: files by path, and complaints about what 3FS does badly."""

    root: Path
    files: dict[str, Written] = field(default_factory=lambda: defaultdict(Written))
    listed: list[str] = field(default_factory=list)
    published: list[tuple[str, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    being_written: dict[int, str] = field(default_factory=dict)

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Begin; it ends with the patch."""
        patch.setattr(os, "close", self._closing(os.close))
        for name in ("open", "write", "fsync", "link", "rename", "replace"):
            patch.setattr(os, name, self._wrapped(getattr(os, name), getattr(self, f"_{name}")))
        for name in ("listdir", "scandir"):
            patch.setattr(os, name, self._wrapped(getattr(os, name), self._list))
        for name in ("flock", "lockf"):
            patch.setattr(fcntl, name, self._wrapped(getattr(fcntl, name), self._lock))
        for name in ("pwrite", "lseek", "ftruncate", "truncate", "posix_fallocate"):
            patch.setattr(os, name, self._wrapped(getattr(os, name), self._out_of_order))

    def _wrapped(self, call: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def wrapper(*args: Any, **more: Any) -> Any:
            result = call(*args, **more)
            note(result, *args)
            return result

        return wrapper

    def _closing(self, close: Callable[[int], None]) -> Callable[[int], None]:
        """Noted before it happens: right after it another thread may open the same number."""

        def wrapper(fd: int) -> None:
            if path := self.being_written.pop(fd, None):
                self.files[path].writers -= 1
            close(fd)

        return wrapper

    def _below(self, path: object) -> str | None:
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        return text if text.startswith(f"{self.root}/") else None

    def _open(self, fd: int, file: object, flags: int = 0, *_: object) -> None:
        path = self._below(file)
        if path is None or not flags & (os.O_WRONLY | os.O_RDWR):
            return
        self.being_written[fd] = path
        written = self.files[path]
        written.writers += 1
        if written.writers > 1:
            self.complaints.append(f"{path} has two writers at once")

    def _write(self, count: int, fd: int, *_: object) -> None:
        if path := self.being_written.get(fd):
            self.files[path].sizes.append(count)
            self.files[path].unsynced = True

    def _fsync(self, _: None, fd: int) -> None:
        if path := self.being_written.get(fd):
            self.files[path].unsynced = False

    def _publish(self, source: object, target: object) -> None:
        old, new = self._below(source), self._below(target)
        if old is None or new is None:
            return
        self.published.append((old, new))
        if os.path.dirname(old) != os.path.dirname(new):
            self.complaints.append(f"{new} comes from another directory, striped in another way")
        if self.files[old].unsynced:
            self.complaints.append(f"{new} is visible before its length is right")

    def _link(self, _: None, source: object, target: object, *__: object) -> None:
        self._publish(source, target)

    _rename = _replace = _link

    def _list(self, _: object, path: object = ".") -> None:
        if isinstance(path, int):
            return
        if (found := self._below(path)) or os.fspath(path) == str(self.root):  # type: ignore[call-overload]
            self.listed.append(str(found or path))

    def _lock(self, _: None, fd: int, *__: object) -> None:
        if path := self.being_written.get(fd):
            self.complaints.append(f"{path} is locked, which other nodes do not see")

    def _out_of_order(self, _: object, file: object, *__: object) -> None:
        path = self.being_written.get(file) if isinstance(file, int) else self._below(file)
        if path:
            self.complaints.append(f"{path} is not written in one go")
