"""The folders of `RUN --mount=type=cache`: they last from build to build and are in no layer.

    <folder>/             locked (flock) while a cache is made
        <name>/           one cache, locked (flock, shared or not) by the steps that use it
            data/         what the commands see

The name is the id, with what no file name may hold as %XX. Caches that start with the files of a
stage or layer, and the second and further ones of private use, have a suffix after a `+`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from dsec_layers.builder.kept import Kept, disk_bytes
from dsec_layers.linux import claim
from dsec_layers.model.digest import Digest

_LONGEST_NAME: Final = 180
Fill = Callable[[Path], None]


def folder_name(identifier: str, seed: str = "") -> str:
    """The name of the cache with this id; `seed` identifies what a new one starts with."""
    name = quote(identifier, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _LONGEST_NAME:
        name = f"{name[:100]}+{Digest.sha256(identifier.encode()).hex}"
    return f"{name}+{Digest.sha256(seed.encode()).hex[:16]}" if seed else name


class Caches:
    """The caches below one folder. Builds of several processes share them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def use(self, name: str, sharing: str, fill: Fill) -> Iterator[Path]:
        """The data of a cache while a step uses it. `fill` gives a new one its first content.

        `sharing`: with others (shared), one after the other (locked, waits), or each a cache of its
        own (private). Raises OSError and what `fill` raises.
        """
        with contextlib.ExitStack() as stack:
            if sharing == "private":
                yield self._private(name, fill, stack)
            else:
                how = fcntl.LOCK_EX if sharing == "locked" else fcntl.LOCK_SH
                yield self._held(name, how, fill, stack)

    def kept(self) -> Iterator[Kept]:
        """All caches, by the names of their folders; the title is the id."""
        for place in sorted(self._folder.glob("*")):
            with contextlib.suppress(FileNotFoundError):
                used_s = place.stat().st_mtime
                title = unquote(place.name.partition("+")[0])
                yield Kept("cache", place.name, title, disk_bytes(place), used_s)

    def remove(self, name: str) -> bool:
        """Remove a cache; False when a step is using it. Raises OSError."""
        place = self._folder / name
        with contextlib.ExitStack() as stack:
            try:
                fd = stack.enter_context(claim.locked(place, fcntl.LOCK_EX | fcntl.LOCK_NB))
            except FileNotFoundError:
                return True
            except BlockingIOError:
                return False
            if _is_still_there(place, fd):
                # Away at once, so that whoever waits for it makes another.
                trash = stack.enter_context(claim.new_folder(self._folder.with_name("work")))
                place.rename(trash / "removed")
        return True

    def _private(self, name: str, fill: Fill, stack: contextlib.ExitStack) -> Path:
        """The first of the caches `name`, `name+2`, ... that nobody uses."""
        number = 1
        while True:
            numbered = name if number == 1 else f"{name}+{number}"
            try:
                return self._held(numbered, fcntl.LOCK_EX | fcntl.LOCK_NB, fill, stack)
            except BlockingIOError:
                number += 1

    def _held(self, name: str, how: int, fill: Fill, stack: contextlib.ExitStack) -> Path:
        place = self._folder / name
        while True:
            self._make(place, fill)
            with contextlib.ExitStack() as attempt:
                try:
                    fd = attempt.enter_context(claim.locked(place, how))
                except FileNotFoundError:
                    continue
                if _is_still_there(place, fd):  # it may have been removed while we waited
                    os.utime(place)  # the time of its last use
                    stack.push(attempt.pop_all())
                    return place / "data"

    def _make(self, place: Path, fill: Fill) -> None:
        if place.is_dir():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with claim.locked(self._folder, fcntl.LOCK_EX):
            if place.is_dir():
                return
            with claim.new_folder(self._folder.with_name("work")) as new:
                data = new / "made" / "data"
                data.mkdir(parents=True)
                fill(data)
                data.parent.rename(place)


def _is_still_there(place: Path, fd: int) -> bool:
    try:
        return os.path.samestat(place.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
