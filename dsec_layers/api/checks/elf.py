"""What an ELF file needs to be started: its interpreter and its shared libraries.

The format is that of the System V ABI, `elf(5)`. Read are the header, the program headers, the
segments PT_INTERP and PT_DYNAMIC, and the names in the string table that the latter points to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

Read = Callable[[int, int], bytes]  # offset and length in bytes; less is returned at the end

_MAGIC: Final = b"\x7fELF"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB = 0, 1, 5
_MAX_SEGMENTS: Final = 256
_MAX_DYNAMIC_BYTES: Final = 64 << 10
_MAX_NAME_BYTES: Final = 4096
_MAX_LIBRARIES: Final = 512


class Needs(NamedTuple):
    """The interpreter, None when there is none, and the names of libraries in their order."""

    interpreter: bytes | None
    libraries: tuple[bytes, ...]


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


class _Form(NamedTuple):
    """How numbers stand in a file: of 32 or 64 bits, of either byte order."""

    wide: bool
    order: str

    def header(self, head: bytes) -> tuple[int, int, int]:
        """Offset, size and count of the program headers."""
        layout = "16sHHIQQQIHHH" if self.wide else "16sHHIIIIIHHH"
        fields = struct.unpack_from(self.order + layout, head)
        return fields[5], fields[9], fields[10]

    def segment(self, row: bytes) -> _Segment:
        if self.wide:
            kind, _, offset, address, _, size = struct.unpack_from(self.order + "IIQQQQ", row)
        else:
            kind, offset, address, _, size = struct.unpack_from(self.order + "IIIII", row)
        return _Segment(kind, offset, address, size)

    def dynamic(self, data: bytes) -> Iterator[tuple[int, int]]:
        pair = struct.Struct(self.order + ("QQ" if self.wide else "II"))
        yield from pair.iter_unpack(data[: len(data) // pair.size * pair.size])


class Dynamic(NamedTuple):
    """What an ELF file tells the loader: its segments, and the pairs of PT_DYNAMIC in order."""

    form: _Form
    segments: Sequence[_Segment]
    pairs: Sequence[tuple[int, int]]
    read: Read

    @property
    def order(self) -> str:
        """The byte order, as `struct` has it."""
        return self.form.order

    def value(self, tag: int) -> int | None:
        """The value of the last pair with this tag."""
        return dict(self.pairs).get(tag)

    def offset(self, tag: int) -> int | None:
        """Where in the file the address of this tag lies; None when it is not there."""
        address = self.value(tag)
        return None if address is None else _file_offset(self.segments, address)

    def names(self, offsets: Iterable[int]) -> Iterator[bytes]:
        """The texts at these places in the string table; none when there is no table."""
        start = self.offset(_DT_STRTAB)
        if start is None:
            return
        for offset in offsets:
            yield self.read(start + offset, _MAX_NAME_BYTES).partition(b"\0")[0]

    def needs(self) -> Needs:
        """What the loader has to find."""
        wanted = (value for tag, value in self.pairs if tag == _DT_NEEDED)
        libraries = filter(None, self.names(islice(wanted, _MAX_LIBRARIES)))
        return Needs(_interpreter(self.segments, self.read), tuple(libraries))


def dynamic(read: Read) -> Dynamic | None:
    """The file as the loader sees it; None when it is no ELF file or its headers make no sense."""
    head = read(0, 64)
    if len(head) < 52 or not head.startswith(_MAGIC):
        return None
    if head[4] not in (1, 2) or head[5] not in (1, 2):
        return None
    form = _Form(head[4] == 2, "<" if head[5] == 1 else ">")
    try:
        segments = _segments(form, head, read)
    except struct.error:  # cut short
        return None
    return Dynamic(form, segments, tuple(_pairs(form, segments, read)), read)


def needs(read: Read) -> Needs | None:
    """What the file needs; None as `dynamic`."""
    found = dynamic(read)
    return found.needs() if found else None


def _segments(form: _Form, head: bytes, read: Read) -> Sequence[_Segment]:
    offset, size, count = form.header(head)
    if not count:
        return ()
    rows = read(offset, size * min(count, _MAX_SEGMENTS))
    if not size or len(rows) < size:
        raise struct.error
    starts = range(0, len(rows) - size + 1, size)
    return [form.segment(rows[start : start + size]) for start in starts]


def _interpreter(segments: Sequence[_Segment], read: Read) -> bytes | None:
    for segment in segments:
        if segment.kind == _PT_INTERP:
            name = read(segment.offset, min(segment.size, _MAX_NAME_BYTES))
            return name.partition(b"\0")[0] or None
    return None


def _pairs(form: _Form, segments: Sequence[_Segment], read: Read) -> Iterator[tuple[int, int]]:
    for segment in segments:
        if segment.kind == _PT_DYNAMIC:
            data = read(segment.offset, min(segment.size, _MAX_DYNAMIC_BYTES))
            yield from takewhile(lambda pair: pair[0] != _DT_NULL, form.dynamic(data))


def _file_offset(segments: Sequence[_Segment], address: int) -> int | None:
    for segment in segments:
        if segment.kind == _PT_LOAD and 0 <= address - segment.address < segment.size:
            return segment.offset + address - segment.address
    return None
