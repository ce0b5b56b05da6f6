"""Changes of files, as inotify(7) tells them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from dsec_runtime.channel import frames
from dsec_runtime.channel.frames import Fields, Tag

if TYPE_CHECKING:
    from dsec_runtime.channel.exchange import Exchange

Kind = Literal["created", "modified", "written", "removed", "moved_from", "moved_to", "changed"]

_IS_FOLDER: Final = 0x40000000
_OVERFLOW: Final = 0x4000
_KINDS: Final[dict[int, Kind]] = {
    0x2: "modified",
    0x4: "changed",
    0x8: "written",
    0x40: "moved_from",
    0x80: "moved_to",
    0x100: "created",
    0x200: "removed",
    0x400: "removed",
    0x800: "moved_from",
}


class Change(NamedTuple):
    """`path` is relative to what is watched, and empty for that itself.

    `written` is a file closed after writing; `changed` its mode, owner or time. `overflow`: some
    changes were not seen.
    """

    path: str
    kind: Kind | Literal["overflow"]
    folder: bool


async def parse_changes(watching: Exchange) -> AsyncIterator[Change]:
    """The changes in what an exchange brings."""
    async for data in watching:
        # Each piece is one event.
        change = _change(frames.fields_of(data))
        if change is not None:
            yield change


def _change(fields: Fields) -> Change | None:
    mask = frames.number(fields, Tag.EVENT)
    path, folder = frames.text(fields, Tag.PATH), bool(mask & _IS_FOLDER)
    if mask & _OVERFLOW:
        return Change(path, "overflow", folder)
    kind = next((kind for bit, kind in _KINDS.items() if mask & bit), None)
    return None if kind is None else Change(path, kind, folder)
