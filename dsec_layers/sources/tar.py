"""A tar archive as a stream of members: all headers put together, contents read in pieces.

Nothing is kept of past members, names are bytes, times are exact, and damage is never taken for
the end of the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.sources.compression import Readable
from dsec_layers.sources.tarheader import BLOCK, Header, MalformedError, parse_header, parse_pax
from dsec_layers.sources.tarmember import (
    Extras,
    Member,
    MemberKind,
    assemble,
    member_kind,
    member_name,
    stored_size,
)
from dsec_layers.sources.tarsparse import check_map

_LONG_NAME: Final = b"L"
_LONG_LINK: Final = b"K"
_PAX: Final = frozenset({b"x", b"X"})
_GLOBAL_PAX: Final = b"g"
_EXTENDED: Final = _PAX | {_LONG_NAME, _LONG_LINK, _GLOBAL_PAX}
_MAX_EXTENDED_BYTES: Final = 1 << 25  # of all extended headers of one member
_MAX_RECORDS: Final = 1 << 19
_MAX_GLOBAL_RECORDS: Final = 256  # every member looks through them
_MAX_GLOBAL_BYTES: Final = 1 << 20
_MAX_BLOCKS_AT_ONCE: Final = 1 << 18

T = TypeVar("T")
P = TypeVar("P")


class TarReader:
    """Iterates over members; between two steps `read` gives the stored bytes of the current one.

    `complete` turns true at the end-of-archive mark; `offset` is where the reader stands in the
    plain archive. Iteration and `read` raise CorruptError for damage and truncation, and
    InvalidInputError for a stream that is no tar archive and for members of unknown kinds.
    """

    def __init__(self, stream: Readable, *, name: str) -> None:
        self.complete = False
        self.offset = 0
        self._stream = stream
        self._name = name
        self._where = "the first header"
        self._left = 0
        self._padding = 0
        self._global_records: dict[bytes, bytes] = {}

    def __iter__(self) -> Iterator[Member]:
        while (header := self._next_header()) is not None:
            extras = Extras(records=list(self._global_records.items()))
            extended_bytes = 0
            while header.kind in _EXTENDED:
                extended_bytes += header.size
                if header.size < 0 or extended_bytes > _MAX_EXTENDED_BYTES:
                    raise self._corrupt(f"extended headers claim {extended_bytes} bytes")
                self._extend(header, extras)
                following = self._next_header()
                if following is None:
                    raise self._corrupt("an extended header has no member")
                header = following
            member = self._member(header, extras)
            if member.kind is not MemberKind.LABEL:
                yield member

    def read(self, size: int, /) -> bytes:
        """At most `size` stored bytes of the current member; none at their end."""
        piece = self._take(min(size, self._left))
        self._left -= len(piece)
        return piece

    def _next_header(self) -> Header | None:
        self._skip()
        block = self._stream.read(BLOCK)
        if not block:
            return None
        self.offset += len(block)
        if len(block) < BLOCK:
            block += self._take(BLOCK - len(block))
        if not block.strip(b"\0"):
            self.complete = True
            return None
        if self.offset > BLOCK:
            return self._checked(parse_header, block)
        try:
            return parse_header(block)
        except MalformedError as error:
            raise InvalidInputError(
                f"{self._name} is not a tar archive",
                hint="archives are tar, plain or compressed by gzip, zstd, xz or bzip2",
            ) from error

    def _extend(self, header: Header, extras: Extras) -> None:
        data = self._take(header.size)
        self._padding = -header.size % BLOCK
        if header.kind == _LONG_NAME:
            extras.long_name = data.split(b"\0", 1)[0]
        elif header.kind == _LONG_LINK:
            extras.long_link = data.split(b"\0", 1)[0]
        else:
            records = self._checked(parse_pax, data)
            extras.records += records
            if len(extras.records) > _MAX_RECORDS:
                raise self._corrupt("a member has too many extended records")
            if header.kind == _GLOBAL_PAX:
                self._keep(records)

    def _keep(self, records: list[tuple[bytes, bytes]]) -> None:
        """Let records apply to all members that follow."""
        known = self._global_records
        known.update(records)
        held_bytes = sum(map(len, known)) + sum(map(len, known.values()))
        if len(known) > _MAX_GLOBAL_RECORDS or held_bytes > _MAX_GLOBAL_BYTES:
            raise self._corrupt("the global headers hold too much")

    def _member(self, header: Header, extras: Extras) -> Member:
        self._where = repr(member_name(header, extras))
        kind = member_kind(header, extras)
        if kind is None:
            raise InvalidInputError(
                f"{self._name}: {self._where} is of the unknown kind {header.kind!r}"
            )
        self._left = self._checked(lambda extras: stored_size(header, extras), extras)
        self._padding = -self._left % BLOCK
        return self._checked(lambda kind: self._assembled(header, kind, extras), kind)

    def _assembled(self, header: Header, kind: MemberKind, extras: Extras) -> Member:
        member = assemble(header, kind, extras, lambda: self._take(BLOCK), self._data_block)
        if kind is MemberKind.FILE:
            check_map(member.size, member.runs, self._left)
        return member

    def _data_block(self) -> bytes:
        block = self.read(BLOCK)
        if not block:
            raise MalformedError("a sparse map is longer than its member")
        return block

    def _checked(self, parse: Callable[[P], T], value: P) -> T:
        try:
            return parse(value)
        except MalformedError as error:
            raise self._corrupt(str(error)) from error

    def _skip(self) -> None:
        """Go to the next header."""
        left = self._left + self._padding
        self._left = self._padding = 0
        while left:
            left -= len(self._take(min(left, _MAX_BLOCKS_AT_ONCE)))

    def _take(self, size: int) -> bytes:
        """Exactly `size` bytes of the archive."""
        piece = self._stream.read(size) if size else b""
        while len(piece) < size:
            more = self._stream.read(size - len(piece))
            if not more:
                raise self._corrupt("the archive ends too early")
            piece += more
        self.offset += size
        return piece

    def _corrupt(self, reason: str) -> CorruptError:
        return CorruptError(f"{self._name}: {reason} (at {self._where}, byte {self.offset})")
