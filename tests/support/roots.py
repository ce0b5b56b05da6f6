"""A writable root over layers, as a build step sees it: stubs lowest, an upper with every trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsec_layers.linux import mount, mountpoints
from dsec_layers.linux.ocispec import Bind


@dataclass(frozen=True)
class Root:
    """A mounted overlay and its upper folder."""

    path: Path
    upper: Path

    def written(self) -> set[str]:
        """Every path in the upper, relative to it."""
        return {str(path.relative_to(self.upper)) for path in self.upper.rglob("*")}


@contextlib.contextmanager
def mounted_root(
    folder: Path, lowers: Sequence[Path], binds: Sequence[Bind] = (), *, stubs: bool = True
) -> Iterator[Root]:
    """Stack `lowers` (topmost first) and a fresh upper below `folder`; unmounted at the end."""
    parts = {name: folder / name for name in ("stubs", "upper", "work", "root")}
    for part in parts.values():
        part.mkdir(parents=True)
    below = [parts["stubs"]] if stubs else []
    if stubs:
        mountpoints.make_stubs(parts["stubs"], lowers, binds)
    mount.mount_overlay(parts["root"], [*lowers, *below], upper=parts["upper"], work=parts["work"])
    try:
        yield Root(parts["root"], parts["upper"])
    finally:
        mount.unmount(parts["root"])
