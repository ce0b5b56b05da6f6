"""Images that are larger than memory, written to a stream as they are made up.

The bytes are pseudo-random, so that no two blocks are the same, and every eighth of them is new, so
that they take little room when they are stored.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from typing import IO

import blake3

from dsec_layers.linux.machine import oci_architecture
from tests.support.ocis import CONFIG, INDEX, LAYER, MANIFEST

FILE_BYTES = 64 << 20
_PIECE_BYTES = 64 << 10
_COPIES = 8


def write_archive(out: IO[bytes], size_bytes: int) -> None:
    """An oci-archive of one layer with so many bytes of files, in one pass and out of order."""
    for name, size, pieces in layout(size_bytes):
        info = tarfile.TarInfo(name)
        info.size = size
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        for piece in pieces:
            out.write(piece)
        out.write(bytes(-size % tarfile.BLOCKSIZE))
    out.write(bytes(2 * tarfile.BLOCKSIZE))


def layout(size_bytes: int) -> Iterator[tuple[str, int, Iterator[bytes]]]:
    """The files of a layout: name, size, and their bytes in pieces."""
    hasher, layer_size = hashlib.sha256(), 0
    for piece in layer(size_bytes):
        hasher.update(piece)
        layer_size += len(piece)
    digest = f"sha256:{hasher.hexdigest()}"
    config = json.dumps(
        {"architecture": oci_architecture(), "os": "linux", "rootfs": {"diff_ids": [digest]}}
    ).encode()
    layers = [{"mediaType": LAYER, "digest": digest, "size": layer_size}]
    manifest = json.dumps(
        {"schemaVersion": 2, "config": _pointer(CONFIG, config), "layers": layers}
    ).encode()
    index = json.dumps(
        {"schemaVersion": 2, "mediaType": INDEX, "manifests": [_pointer(MANIFEST, manifest)]}
    ).encode()
    yield _blob(digest), layer_size, layer(size_bytes)
    for name, data in (
        ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        ("index.json", index),
        (_blob(_digest(manifest)), manifest),
        (_blob(_digest(config)), config),
    ):
        yield name, len(data), iter([data])


def layer(size_bytes: int) -> Iterator[bytes]:
    """The plain tar of the layer, in pieces."""
    for number in range(-(-size_bytes // FILE_BYTES)):
        info = tarfile.TarInfo(f"data/{number:04}")
        info.size = FILE_BYTES
        yield info.tobuf(tarfile.GNU_FORMAT)
        stream = blake3.blake3(str(number).encode())
        fresh = _PIECE_BYTES // _COPIES
        for start in range(0, FILE_BYTES // _COPIES, fresh):
            yield stream.digest(length=fresh, seek=start) * _COPIES
    yield bytes(2 * tarfile.BLOCKSIZE)


def write_many(out: IO[bytes], entries: int) -> None:
    """A tar of so many empty files, a thousand in each directory."""
    block = io.BytesIO()
    for number in range(entries):
        info = tarfile.TarInfo(f"some/directory/{number // 1000:04}/file-{number:07}")
        block.write(info.tobuf(tarfile.GNU_FORMAT))
        if block.tell() >= 1 << 20:
            out.write(block.getvalue())
            block = io.BytesIO()
    out.write(block.getvalue() + bytes(2 * tarfile.BLOCKSIZE))


def _pointer(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"
