"""What the packing of one layer leaves behind, so that the next one reads only what is new.

Two things are remembered. Of files: what they were when they were read, and what was found. Of
contents: which chunks they became. Both are only saved work: a layer is the same without them, and
a memory that is damaged, or was made by other rules, is an empty one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import blake3
import msgspec
import pyfastcdc
import zstandard

from dsec_layers.chunks import constants as c
from dsec_layers.chunks.content import Scan
from dsec_layers.chunks.frames import StoredFrames
from dsec_layers.model.content import Content, LocalFile

# What decides which chunks become of contents, besides the contents.
RULES: Final = f"1 fastcdc {pyfastcdc.__version__} " + " ".join(
    str(number)
    for number in (
        *(c.GROUP_MIN_BYTES, c.GROUP_TARGET_BYTES, c.LARGE_FILE_BYTES, c.MAX_CHUNK_BYTES),
        *(c.CDC_MIN_BYTES, c.CDC_AVERAGE_BYTES, c.CDC_MAX_BYTES, c.CDC_NORMALISATION),
    )
)
_MAX_BYTES: Final = 1 << 30
_DIGEST_BYTES: Final = 32


class Cut(NamedTuple):
    """A chunk by its digest and its plain length."""

    digest: bytes
    length: int


State = tuple[int, int, int, int]  # bytes, times of modification and of change in ns, inode


class Seen(NamedTuple):
    """A file when it was read, and what was found."""

    state: State
    scan: Scan


# By the digest of a large content, or by `group_key` of small ones.
Recipes = Mapping[bytes, tuple[Cut, ...]]


class Memory(msgspec.Struct, frozen=True):
    """Files by path, and what became of contents."""

    files: Mapping[bytes, Seen] = {}
    recipes: Recipes = {}
    rules: str = RULES

    def encode(self) -> bytes:
        """The memory with its digest in front."""
        data = zstandard.compress(msgspec.msgpack.encode(self), 1)
        return blake3.blake3(data).digest() + data

    @classmethod
    def decode(cls, data: bytes) -> Memory:
        """What `encode` gave; empty when it is anything else, or was made by other rules."""
        digest, data = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if blake3.blake3(data).digest() != digest:
            return cls()
        try:
            plain = zstandard.decompress(data, max_output_size=_MAX_BYTES)
            memory = msgspec.msgpack.decode(plain, type=cls)
        except (zstandard.ZstdError, msgspec.MsgspecError):
            return cls()
        return memory if memory.rules == RULES else cls()


class Before(msgspec.Struct, frozen=True):
    """What is known of the version of a layer that was packed before.

    `remember` is called with what the packing of this one leaves behind.
    """

    frames: StoredFrames | None = None
    memory: Memory = msgspec.field(default_factory=Memory)
    remember: Callable[[Memory], None] = lambda _: None


def group_key(digests: Iterable[bytes]) -> bytes:
    """Stands for small contents that follow one another in one chunk."""
    return blake3.blake3(b"group" + b"".join(digests)).digest()


class Files:
    """Tells what is known of files that are as they were, and notes what is read now in `seen`."""

    def __init__(self, known: Mapping[bytes, Seen]) -> None:
        self.seen: dict[bytes, Seen] = {}
        self._known = known

    def find(self, content: Content) -> Scan | None:
        """What reading this would tell, if nothing has touched it since. Raises OSError."""
        path = content.path
        known = self._known.get(path)
        if known is None or known.state != self.state(content):
            return None
        self.seen[path] = known
        return known.scan

    def state(self, content: Content) -> State | None:
        """What a file is, before it is read; for `note`. Raises OSError."""
        if not isinstance(content, LocalFile):
            return None
        return content.state or _state(content.path)

    def note(self, content: Content, state: State | None, scan: Scan) -> None:
        """Remember what was found in a file that was in this state before."""
        if state is not None:
            self.seen[content.path] = Seen(state, scan)


def _state(path: bytes) -> State:
    status = os.lstat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
