"""A process that reads mounted files and compares every byte with what it must be.

    python -m tests.support.chaos_reader KIND SEED PLAIN MOUNTED...

PLAIN holds the same files as each of MOUNTED, on a plain disk. KIND is `sequential` (whole files in
pieces), `random` (four threads, pieces anywhere) or `mapped` (by mmap). The page cache of a file is
dropped before it is read, so that reads come to the daemon. It goes on until its standard input
ends. Every line it prints is an event, all times being CLOCK_MONOTONIC:

    read BEGAN LENGTH       before a read of `mapped`, which may end by SIGBUS
    eio BEGAN ENDED PATH    a read that failed with EIO
    bad PATH OFFSET TEXT    a wrong byte, or an error that must not be
    sum READS BYTES SLOWEST_S
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import select
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_PIECE = 128 << 10
_THREADS = 4
_lock = threading.Lock()


@dataclass
class Sums:
    """What one reader has done."""

    reads: int = 0
    bytes: int = 0
    slowest_s: float = 0.0
    told_at: float = field(default_factory=time.monotonic)

    def add(self, length: int, seconds: float) -> None:
        with _lock:
            self.reads += 1
            self.bytes += length
            self.slowest_s = max(self.slowest_s, seconds)
        if time.monotonic() - self.told_at > 0.5:
            self.tell()

    def tell(self) -> None:
        self.told_at = time.monotonic()
        say(f"sum {self.reads} {self.bytes} {self.slowest_s:.3f}")


def say(line: str) -> None:
    """One write, so that lines of threads do not mix and none is lost when the process is."""
    os.write(1, f"{line}\n".encode())


@dataclass
class Reader:
    """Reads the file `name` of one of `roots` at a time."""

    plain: Path
    roots: list[Path]
    names: list[str]
    sums: Sums

    def sequential(self, choose: random.Random) -> None:
        self._through_file(choose, self._pieces)

    def scattered(self, choose: random.Random) -> None:
        self._through_file(choose, self._anywhere)

    def mapped(self, choose: random.Random) -> None:
        self._through_file(choose, self._map)

    def _through_file(
        self, choose: random.Random, how: Callable[[int, str, bytes, random.Random], None]
    ) -> None:
        name = choose.choice(self.names)
        wanted = (self.plain / name).read_bytes()
        path = str(choose.choice(self.roots) / name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            say(f"bad {path} 0 open: {error}")
            return
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            how(fd, path, wanted, choose)
        finally:
            os.close(fd)

    def _pieces(self, fd: int, path: str, wanted: bytes, _choose: random.Random) -> None:
        for offset in range(0, len(wanted) + 1, _PIECE):
            self._read(fd, path, wanted, offset, _PIECE)

    def _anywhere(self, fd: int, path: str, wanted: bytes, choose: random.Random) -> None:
        for _ in range(8):
            offset = choose.randrange(len(wanted))
            self._read(fd, path, wanted, offset, choose.choice((1, 512, 4096, 65536, _PIECE)))

    def _read(self, fd: int, path: str, wanted: bytes, offset: int, length: int) -> None:
        began = time.monotonic()
        try:
            found = os.pread(fd, length, offset)
        except OSError as error:
            ended = time.monotonic()
            self.sums.add(0, ended - began)
            if error.errno == errno.EIO:
                say(f"eio {began} {ended} {path}")
            else:
                say(f"bad {path} {offset} {error}")
            return
        self.sums.add(len(found), time.monotonic() - began)
        # A read may end early where the next page cannot be had; never may a byte be wrong.
        right = wanted[offset : offset + length]
        if found != right and not (found and right.startswith(found)):
            say(f"bad {path} {offset} {len(found)} bytes are not what they must be")

    def _map(self, fd: int, path: str, wanted: bytes, choose: random.Random) -> None:
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            for _ in range(8):
                offset = choose.randrange(len(wanted))
                length = choose.choice((1, 4096, 65536))
                began = time.monotonic()
                say(f"read {began} {length}")
                found = mapped[offset : offset + length]
                self.sums.add(len(found), time.monotonic() - began)
                if found != wanted[offset : offset + length]:
                    say(f"bad {path} {offset} mapped bytes are not what they must be")
            self.sums.tell()


def main() -> None:
    kind, seed, plain, *roots = sys.argv[1:]
    stop = threading.Event()
    folder = Path(plain)
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    reader = Reader(folder, [Path(root) for root in roots], names, Sums())

    def work(number: int) -> None:
        choose = random.Random(f"{seed}-{number}")
        step = {
            "sequential": reader.sequential,
            "random": reader.scattered,
            "mapped": reader.mapped,
        }
        while not stop.is_set():
            step[kind](choose)

    count = _THREADS if kind == "random" else 1
    threads = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    select.select([sys.stdin], [], [])
    stop.set()
    for thread in threads:
        thread.join()
    reader.sums.tell()


if __name__ == "__main__":
    main()
