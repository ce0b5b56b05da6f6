"""What a build asks of the stores that others have put results of steps into.

The public API passes implementations in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from dsec_layers.builder.stepcache import Result, WorkFolder

Tell = Callable[[str], None]


class MadeStep(msgspec.Struct, frozen=True):
    """A step of a build that is done. `parent` is the identity of what it was done on."""

    key: str
    title: str
    parent: str
    result: Result


class StepStore(Protocol):
    """A place to look for results of steps."""

    @property
    def url(self) -> str:
        """Where it is, for people."""
        ...

    def fetch(self, key: str, folder: WorkFolder, tell: Tell) -> str | None:
        """Write the result of `key` into the upper of `folder`, and return its identity.

        None when there is none that can be had; `tell` is told why, unless there just is none.
        Raises InterruptedError and NoSpaceError only.
        """
        ...
