"""A Source from a tar archive: a root file system, or one layer of an OCI image."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.linux import cancelling
from dsec_layers.model.content import Source
from dsec_layers.sources.compression import Readable, plain
from dsec_layers.sources.spool import Spool
from dsec_layers.sources.tar import TarReader
from dsec_layers.sources.tarheader import BLOCK, MalformedError, parse_header
from dsec_layers.sources.tarmember import MemberKind
from dsec_layers.sources.treebuilder import TreeBuilder

_PIECE: Final = 1 << 16


def is_tar(stream: Readable, *, name: str = "archive") -> bool:
    """Whether `stream` begins like a tar archive, plain or compressed, with at least one member."""
    try:
        parse_header(plain(stream, name=name).read(BLOCK))
    except (CorruptError, MalformedError, struct.error):
        return False
    return True


def read_tar(
    stream: Readable,
    spool_dir: Path,
    *,
    name: str = "archive",
    oci: bool = False,
    lower: Source | None = None,
) -> Source:
    """The tree of a tar archive, read once to its end; contents go to one file in `spool_dir`.

    The archive is plain or compressed by gzip, zstd, xz or bzip2, in the v7, ustar, pax or GNU
    format. The last of several members of a path wins. Missing parents are root's, mode 0755, time
    0. With `oci` it is a layer of an image over `lower`: whiteout markers are obeyed, the result is
    a diff, and parents and hard-link targets that it lacks are those of `lower`. Memory is bounded
    by the number of members. `spool_dir` is the caller's to remove, also after an error.

    Raises InvalidInputError (no tar archive, or a member that no tree can hold), CorruptError
    (damaged or cut short), both with `name` and the member, or NoSpaceError.
    """
    data = plain(stream, name=name)
    if not data.peek(1):
        raise InvalidInputError(f"{name} is empty", hint="see whether the program before it failed")
    reader = TarReader(data, name=name)
    builder = TreeBuilder(name=name, lower=lower)
    with Spool(spool_dir) as spool:
        for member in reader:
            cancelling.check()
            if oci and builder.add_marker(member.name):
                continue
            is_file = member.kind is MemberKind.FILE
            builder.add(member, spool.add(reader.read, member.runs) if is_file else None)
    if not reader.complete and not oci:
        raise CorruptError(f"{name} has no end mark: it was cut short")
    while data.read(_PIECE):  # whoever writes the archive wants to write all of it
        pass
    return builder.finish()
