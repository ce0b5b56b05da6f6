"""Where the bytes of a file lie on this machine, before they are packed.

Values only; `chunks` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dsec_layers.model.tree import Tree


@dataclass(frozen=True, slots=True)
class LocalFile:
    """The content is the whole file at `path`; its file system tells its holes."""

    path: bytes


@dataclass(frozen=True, slots=True)
class Spooled:
    """The content lies in `path`, in runs of (offset in the content, length, offset in `path`).

    Between the runs are zeros.
    """

    path: bytes
    runs: tuple[tuple[int, int, int], ...]


Content = LocalFile | Spooled


@dataclass(frozen=True, slots=True)
class Source:
    """A tree and the places of its file contents, by path.

    Every name of a hard-linked file is in the mapping.

    File digests in the tree may still be empty; packing reads each content once and fills them in.
    """

    tree: Tree
    contents: Mapping[bytes, Content] = field(default_factory=dict)
