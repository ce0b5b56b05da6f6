"""Ranges of user and group ids: each sandbox has one of its own on the node.

    FOLDER/<number>    a link to the id of the sandbox that has this range

A claim is a link that only one can make, so it needs no lock, and holds until it is removed,
whoever is killed meanwhile. Mounts are shown with other ids by way of user namespaces; making one
takes longer than all else about it, so those of a range are kept for whoever has it next.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_runtime.errors import OverloadedError
from dsec_runtime.linux.userns import open_userns

COUNT: Final = 65536
_FIRST: Final = 0x40000000  # far from what useradd gives to people as subordinate ids
_MOST: Final = 12288

OpenUserns = Callable[[Sequence[tuple[int, int, int]]], int]


class Identity(msgspec.Struct, frozen=True):
    """A range: `first` is its lowest id on the node, root's in the sandbox.

    `layers` and `upper` are user namespaces, for the mounts of an overlay. Overlayfs works as the
    node's root in the upper: it maps that too, to an id just above the sandbox's.
    """

    number: int
    first: int
    layers: int
    upper: int


class Identities:
    """The ranges of one folder. Safe for many threads; another process must not use it too."""

    def __init__(self, folder: Path, *, open_userns: OpenUserns = open_userns) -> None:
        self._folder = folder
        self._open = open_userns
        self._lock = threading.Lock()
        self._ready: dict[int, Identity] = {}
        folder.mkdir(exist_ok=True)
        self._taken = {int(path.name): str(path.readlink()) for path in folder.iterdir()}
        self._free: list[int] = []  # those that were used last, so that they are ready
        self._next = 0

    def take(self, sandbox: str) -> Identity:
        """A range for a sandbox. Raises OverloadedError when there is none, OSError."""
        with self._lock:
            number = self._number()
            (self._folder / str(number)).symlink_to(sandbox)
            self._taken[number] = sandbox
        try:
            return self._identity(number)
        except BaseException:
            self._give_back(number)
            raise

    def release(self, sandbox: str) -> None:
        """Give up what the sandbox has; nothing happens when it has nothing."""
        with self._lock:
            numbers = [number for number, holder in self._taken.items() if holder == sandbox]
        for number in numbers:
            self._give_back(number)

    def holders(self) -> frozenset[str]:
        """The sandboxes that have a range."""
        with self._lock:
            return frozenset(self._taken.values())

    def prepare(self, count: int) -> None:
        """Make the user namespaces of the next `count` ranges."""
        with self._lock:
            free = [number for number in range(_MOST) if number not in self._taken][:count]
            self._free = [*reversed(free)]
            self._next = free[-1] + 1 if free else _MOST
        for number in free:
            self._identity(number)

    def close(self) -> None:
        """Let the user namespaces go; the claims stay."""
        with self._lock:
            for identity in self._ready.values():
                os.close(identity.layers)
                os.close(identity.upper)
            self._ready.clear()

    def _number(self) -> int:
        if self._free:
            return self._free.pop()
        while self._next in self._taken:
            self._next += 1
        if self._next >= _MOST:
            raise OverloadedError("all ranges of user ids are in use on this node")
        self._next += 1
        return self._next - 1

    def _give_back(self, number: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._folder / str(number)).unlink()
        with self._lock:
            if self._taken.pop(number, None) is not None:
                self._free.append(number)

    def _identity(self, number: int) -> Identity:
        if (found := self._ready.get(number)) is not None:
            return found
        first = _FIRST + number * COUNT
        layers = self._open([(0, first, COUNT)])
        try:
            upper = self._open([(0, first, COUNT), (COUNT, 0, 1)])
        except BaseException:
            os.close(layers)
            raise
        made = Identity(number, first, layers, upper)
        with self._lock:
            self._ready[number] = made
        return made
