"""What an overlay mount is made of, from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dsec_layers.linux import syscalls


class OverlayMount(msgspec.Struct, frozen=True):
    """A mounted overlay. `lowers` are topmost first; `upper` is None when it is read-only."""

    target: Path
    upper: Path | None
    lowers: tuple[Path, ...]


def overlays() -> Iterator[OverlayMount]:
    """The overlays of this process's namespace, in mount order."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        head, _, tail = line.partition(b" - ")
        filesystem, _, options = tail.split(b" ", 2)
        if filesystem == b"overlay":
            yield _parse(_plain(head.split(b" ")[4]), options.split(b","))


def overlay_at(target: Path) -> OverlayMount | None:
    """The topmost mount on `target`, when it is an overlay."""
    found = [each for each in overlays() if each.target == target]
    return found[-1] if found else None


def overlay_over(upper: Path) -> OverlayMount | None:
    """The overlay that writes to `upper` now, as far as this namespace shows it."""
    return next((each for each in overlays() if each.upper == upper), None)


def sync(folder: Path) -> None:
    """Write the file system of `folder` to its disk. Raises OSError.

    From then on the first write through a mapping changes a file's times, as any other write does.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syscalls.syncfs(fd)
    finally:
        os.close(fd)


def _parse(target: str, options: list[bytes]) -> OverlayMount:
    upper, lowers = None, list[Path]()
    for option in options:
        name, _, value = option.partition(b"=")
        if name == b"upperdir":
            upper = Path(_plain(value))
        elif name == b"lowerdir+":
            lowers.append(Path(_plain(value)))
        elif name == b"lowerdir":
            lowers += [Path(_plain(each)) for each in value.split(b":") if each]
    return OverlayMount(Path(target), upper, tuple(lowers))


def _plain(field: bytes) -> str:
    plain = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field)
    return os.fsdecode(plain)
