"""Where the bytes of a file lie on this machine, before they are packed.

Values only; `chunks` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dsec_layers.model.tree import Tree


class LocalFile(msgspec.Struct, frozen=True, gc=False):
    """The content is the whole file at `path`; its file system tells its holes.

    `state` is what the file was when its tree was read, where somebody wants to know that: its
    bytes, its times of modification and of change in ns, and its inode.
    """

    path: bytes
    state: tuple[int, int, int, int] | None = None


class Spooled(msgspec.Struct, frozen=True):
    """The content lies in `path`, in runs of (offset in the content, length, offset in `path`).

    Between the runs are zeros.
    """

    path: bytes
    runs: tuple[tuple[int, int, int], ...]


Content = LocalFile | Spooled


class Source(msgspec.Struct, frozen=True):
    """A tree and the places of its file contents, by path.

    Every name of a hard-linked file is in the mapping.

    File digests in the tree may still be empty; packing reads each content once and fills them in.
    """

    tree: Tree
    contents: Mapping[bytes, Content] = {}
