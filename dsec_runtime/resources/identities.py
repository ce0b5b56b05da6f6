"""Ranges of user and group ids: each sandbox has one of its own on the node.

    FOLDER/<number>    a link to the id of the sandbox that has this range

A claim is a link that only one can make, so it needs no lock, and holds until it is removed,
whoever is killed meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Final

import msgspec

from dsec_runtime.errors import OverloadedError

COUNT: Final = 65536
_FIRST: Final = 0x40000000  # far from what useradd gives to people as subordinate ids
_MOST: Final = 12288

Lines = tuple[tuple[int, int, int], ...]


class Identity(msgspec.Struct, frozen=True):
    """A range: `first` is its lowest id on the node, root's in the sandbox."""

    first: int

    @property
    def layers(self) -> Lines:
        """The map with which layers are shown: inside, outside, count."""
        return ((0, self.first, COUNT),)

    @property
    def upper(self) -> Lines:
        """The map with which an upper is shown.

        Overlayfs works there as the node's root, so that is mapped too, to an id just above the
        sandbox's; else it mounts read-only, without a word.
        """
        return (*self.layers, (COUNT, 0, 1))


class Identities:
    """The ranges of one folder. Safe for many threads; another process must not use it too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        folder.mkdir(exist_ok=True)
        self._taken = {int(path.name): str(path.readlink()) for path in folder.iterdir()}
        self._free: list[int] = []
        self._next = 0

    def take(self, sandbox: str) -> Identity:
        """A range for a sandbox. Raises OverloadedError when there is none, OSError."""
        with self._lock:
            number = self._number()
            try:
                (self._folder / str(number)).symlink_to(sandbox)
            except BaseException:
                self._free.append(number)
                raise
            self._taken[number] = sandbox
        return Identity(_FIRST + number * COUNT)

    def release(self, sandbox: str) -> None:
        """Give up what the sandbox has; nothing happens when it has nothing."""
        with self._lock:
            numbers = [number for number, holder in self._taken.items() if holder == sandbox]
            for number in numbers:
                with contextlib.suppress(FileNotFoundError):
                    (self._folder / str(number)).unlink()
                del self._taken[number]
                self._free.append(number)

    def holders(self) -> frozenset[str]:
        """The sandboxes that have a range."""
        with self._lock:
            return frozenset(self._taken.values())

    def _number(self) -> int:
        if self._free:
            return self._free.pop()
        while self._next in self._taken:
            self._next += 1
        if self._next >= _MOST:
            raise OverloadedError("all ranges of user ids are in use on this node")
        self._next += 1
        return self._next - 1
