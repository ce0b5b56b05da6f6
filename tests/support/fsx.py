"""Random reads, writes, truncations and mappings of one file, each compared with a model of it."""

from __future__ import annotations

import mmap
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = 4096
_MOST = 256 << 10  # the largest file
_PIECE = 48 << 10  # the largest operation


@dataclass
class Exerciser:
    """A file that holds `model`. `done` says what was done, for the message of a failure."""

    path: Path
    model: bytearray
    choose: random.Random
    direct: bool = True
    done: list[str] = field(default_factory=list)

    def run(self, count: int) -> None:
        """Do `count` random operations. Raises AssertionError where file and model part."""
        steps = [
            self._read,
            self._write,
            self._append,
            self._truncate,
            self._map,
            self._map_private,
        ]
        steps += [self._allocate, self._reopen] + ([self._direct] if self.direct else [])
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for _ in range(count):
                self.choose.choice(steps)()
                size = os.fstat(self._fd).st_size
                assert size == len(self.model), self._trail(f"{size} bytes long")
            self._compare(0, os.pread(self._fd, _MOST + 1, 0))
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
        assert self.path.read_bytes() == bytes(self.model), self._trail("not what was written")

    def _range(self) -> tuple[int, int]:
        offset = self.choose.randrange(len(self.model) + 1)
        return offset, min(self.choose.randrange(1, _PIECE), _MOST - offset)

    def _note(self, what: str, offset: int, length: int) -> None:
        self.done.append(f"{what} {offset}+{length}")

    def _compare(self, offset: int, found: bytes) -> None:
        wanted = bytes(self.model[offset : offset + len(found)])
        assert found == wanted, self._trail(f"wrong bytes from {offset}, {len(found)} of them")

    def _trail(self, what: str) -> str:
        return f"{self.path}: {what} after {', '.join(self.done[-12:])}"

    def _put(self, offset: int, data: bytes) -> None:
        if offset > len(self.model):
            self.model += bytes(offset - len(self.model))
        self.model[offset : offset + len(data)] = data

    def _read(self) -> None:
        offset, length = self._range()
        self._note("read", offset, length)
        found = os.pread(self._fd, length, offset)
        assert len(found) == min(length, len(self.model) - offset), self._trail("a short read")
        self._compare(offset, found)

    def _write(self) -> None:
        offset, length = self._range()
        self._note("write", offset, length)
        data = self.choose.randbytes(length)
        assert os.pwrite(self._fd, data, offset) == length
        self._put(offset, data)

    def _append(self) -> None:
        """Also beyond the end, which leaves a hole."""
        offset = min(len(self.model) + self.choose.choice((0, 0, 5000, 20000)), _MOST - 100)
        data = self.choose.randbytes(100)
        self._note("append", offset, len(data))
        os.pwrite(self._fd, data, offset)
        self._put(offset, data)

    def _truncate(self) -> None:
        size = self.choose.randrange(_MOST)
        self._note("truncate", size, 0)
        os.ftruncate(self._fd, size)
        del self.model[size:]
        self.model += bytes(size - len(self.model))

    def _map(self) -> None:
        """What is written to a shared mapping is in the file, and the other way round."""
        if not self.model:
            return
        offset, length = self._range()
        length = min(length, len(self.model) - offset)
        self._note("map", offset, length)
        with mmap.mmap(self._fd, len(self.model)) as mapped:
            self._compare(offset, mapped[offset : offset + length])
            data = self.choose.randbytes(length)
            mapped[offset : offset + length] = data
            self._put(offset, data)
            self._compare(offset, os.pread(self._fd, length, offset))
            if length:
                os.pwrite(self._fd, b"!", offset)
                self._put(offset, b"!")
                assert mapped[offset : offset + 1] == b"!", self._trail("not seen in the mapping")

    def _map_private(self) -> None:
        """What is written to a private mapping stays in it."""
        if not self.model:
            return
        offset = self.choose.randrange(len(self.model))
        self._note("map privately", offset, 1)
        with mmap.mmap(self._fd, 0, flags=mmap.MAP_PRIVATE) as mapped:
            self._compare(offset, mapped[offset : offset + 1])
            mapped[offset] = mapped[offset] ^ 0xFF
            self._compare(offset, os.pread(self._fd, 1, offset))

    def _allocate(self) -> None:
        """Allocate, which changes nothing but the size where it goes beyond the end."""
        offset, length = self._range()
        if length <= 0:
            return
        self._note("allocate", offset, length)
        os.posix_fallocate(self._fd, offset, length)
        self.model += bytes(max(0, offset + length - len(self.model)))

    def _direct(self) -> None:
        """Read and write past the page cache."""
        offset = self.choose.randrange(_MOST // _BLOCK) * _BLOCK
        fd = os.open(self.path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        try:
            with mmap.mmap(-1, _BLOCK) as page:
                if self.choose.random() < 0.5:
                    self._note("write directly", offset, _BLOCK)
                    page[:] = self.choose.randbytes(_BLOCK)
                    assert os.pwritev(fd, [page], offset) == _BLOCK
                    self._put(offset, page[:])
                else:
                    self._note("read directly", offset, _BLOCK)
                    length = os.preadv(fd, [page], offset)
                    self._compare(offset, page[:length])
        finally:
            os.close(fd)

    def _reopen(self) -> None:
        self._note("reopen", 0, 0)
        os.close(self._fd)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
