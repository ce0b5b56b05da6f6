"""What a reader that follows docs/formats finds is what was packed, in every field."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from msgspec.structs import replace

from dsec_layers.builder.borrowing import copied_up
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.chunks.table import Chunk, ChunkTable
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.model.content import LocalFile, Source
from dsec_layers.model.tree import Entry, EntryKind, Tree, sparse_content_hasher
from tests.support import trees
from tests.support.profiles import fewer
from tests.support.stranger_erofs import crc32c
from tests.support.stranger_parts import Refused, open_chunk, unzstd, walk_pack
from tests.support.stranger_workshop import Workshop, check_items, check_packs, file, folder

FILE, DIRECTORY, CHAR = EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.CHAR
MARKER, OPAQUE = b"trusted.overlay.whiteout", b"trusted.overlay.opaque"


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@fewer
@given(trees.trees())
def test_any_tree(drawn: tuple[Tree, trees.Contents]) -> None:
    with tempfile.TemporaryDirectory() as place:
        Workshop(Path(place)).check(*drawn)


def test_an_empty_layer(workshop: Workshop) -> None:
    layer = workshop.check(Tree.of([]), {})
    assert (layer.table.records, layer.packs) == ([], [])


def test_changes_of_lower_layers(workshop: Workshop) -> None:
    entries = [
        Entry(path=b"gone", kind=EntryKind.WHITEOUT),
        folder(b"new", opaque=True, mode=0o755, xattrs=((b"user.a", b""),)),
        Entry(path=b"new/gone", kind=EntryKind.WHITEOUT),
        folder(b"old", mode=0o1777),
        Entry(path=b"old/gone", kind=EntryKind.WHITEOUT),
    ]
    workshop.check(Tree.of(entries), {})


def test_content_that_looks_like_changes(workshop: Workshop) -> None:
    """Every row of the table of escapes, and values that only look like one."""
    device = Entry(path=b"dev", kind=CHAR, mode=0o640, uid=7, gid=8, mtime_ns=-1)
    origin = b"trusted.overlay.origin"
    entries = [
        device,
        replace(device, path=b"dev-a", xattrs=((OPAQUE, b"y"), (b"user.a", b"1"))),
        folder(b"dir", xattrs=((OPAQUE, b"y"), (origin, b"o"))),
        folder(b"dir/opaque", opaque=True, xattrs=((b"trusted.overlay.overlay.opaque", b"y"),)),
        Entry(path=b"dir/gone", kind=EntryKind.WHITEOUT),
        Entry(path=b"fifo", kind=EntryKind.FIFO, xattrs=((MARKER, b"y"),)),
    ]
    contents: trees.Contents = {}
    for number, value in enumerate((b"", b"n", b"y", b"yd", b"yf", b"yx", b"ydy", b"yfy", b"yyf")):
        entries += [
            replace(device, path=b"dev-%d" % number, xattrs=((MARKER, value),)),
            file(b"empty-%d" % number, b"", xattrs=((MARKER, value),)),
            file(b"full-%d" % number, value + b"1", xattrs=((MARKER, value),)),
        ]
        contents |= {b"empty-%d" % number: b"", b"full-%d" % number: value + b"1"}
    workshop.check(Tree.of(entries), contents)


def test_links_of_every_kind(workshop: Workshop) -> None:
    """Groups are numbered by their first names, here the other way round than by their last."""
    kinds = [kind for kind in EntryKind if kind not in (DIRECTORY, FILE, EntryKind.WHITEOUT)]
    entries = [folder(b"d")]
    for number, kind in enumerate(kinds, 1):
        target = b"t" if kind is EntryKind.SYMLINK else b""
        entry = Entry(path=b"%d" % number, kind=kind, target=target, link_group=number, mode=0o600)
        entries += [entry, replace(entry, path=b"d/%d" % (9 - number))]
    data = b"x" * 5000
    entries += [file(path, data, link_group=9) for path in (b"d-", b"d/f", b"z")]
    workshop.check(Tree.of(entries), dict.fromkeys((b"d-", b"d/f", b"z"), data))


def test_many_names_long_names_and_large_xattrs(workshop: Workshop) -> None:
    """Directories of several blocks with and without a tail, link targets that need a block."""
    value = b"v" * 65535
    entries = [
        folder(b"d"),
        *(folder(b"d/%0250d" % number) for number in range(100)),
        folder(b"exact"),
        *(Entry(path=b"exact/%0240d" % number, kind=EntryKind.FIFO) for number in range(16)),
        Entry(path=b"exact/" + b"e" * 22, kind=EntryKind.FIFO),
        Entry(path=b"long", kind=EntryKind.SYMLINK, target=b"t" * 4095),
        Entry(path=b"short", kind=EntryKind.SYMLINK, target=b"t" * 4032, mode=0o777),
        file(b"x", b"1", xattrs=tuple((b"user.%d" % number, value) for number in range(3))),
        folder(b"y", xattrs=((b"system.posix_acl_default", b"\2\0\0\0"), (b"user.a", value))),
        Entry(path=b"z", kind=EntryKind.BLOCK, major=4095, minor=2**20 - 1, uid=2**32 - 2),
        Entry(path=b"zz", kind=CHAR, major=0, minor=2**20 - 256, mtime_ns=-(2**63)),
    ]
    workshop.check(Tree.of(entries), {b"x": b"1"})


def test_holes_and_files_of_many_chunks(workshop: Workshop) -> None:
    block, noise = b"x" * 4096, os.urandom(9 << 20)
    contents = {
        b"all hole": bytes(1 << 20),
        b"big": noise + b"end",
        b"end": bytes(8192) + b"e",
        b"middle": block + bytes(4096 * 5) + block * 2 + bytes(4096) + b"\0" * 9,
        b"nearly": b"\0" * 4095 + b"n",
        b"same": noise + b"end",
        b"short hole": bytes(5),
    }
    tree = Tree.of(file(path, data) for path, data in contents.items())
    layer = workshop.check(tree, contents)
    assert len(layer.table.records) > 3
    assert layer.config["sizes"]["device_bytes"] < 10 << 20


def test_a_terabyte_of_holes(workshop: Workshop) -> None:
    """Its runs are widened on the device; the stranger finds the exact ones again."""
    size, at, data = 2**40, 2**39 + 4096, b"x" * 4096
    place = workshop.stranger.root.parent / "sparse"
    with place.open("wb") as out:
        out.seek(at)
        out.write(data)
        out.truncate(size)
    entry = Entry(path=b"sparse", kind=FILE, size=size)
    workshop.pack(Source(Tree.of([entry]), {b"sparse": LocalFile(os.fsencode(place))}))
    layer = workshop.read()
    assert layer.runs == {b"sparse": [(at, data)]}
    assert layer.config["sizes"]["device_bytes"] == 1 << 20
    hasher = sparse_content_hasher(size, [(at, 4096)])
    check_items(layer, Tree.of([replace(entry, digest=hasher.update(data).digest())]))


def test_packs_of_a_parent(workshop: Workshop) -> None:
    """One layer refers to whole chunks of another; the device then has bytes of no file of it."""
    small = {b"lib-%03d" % number: os.urandom(5000) for number in range(300)}
    base = {**small, b"big": os.urandom(700_000)}
    base_tree = Tree.of(file(path, data) for path, data in base.items())
    below = workshop.check(base_tree, base)
    image, table = _parts(workshop)

    def read_chunk(chunk: Chunk) -> bytes:
        stored = below.packs[chunk.pack][chunk.pack_offset :][: chunk.stored_length]
        return open_chunk(stored, chunk.length, chunk.digest)

    upper = {b"copy": base[b"big"], b"lib-123": small[b"lib-123"], b"new": b"new" * 9}
    tree = Tree.of(file(path, data) for path, data in upper.items())
    source = workshop.source(tree, upper)
    held = copied_up(source, image, table, read_chunk)
    known = KnownLayer(table, workshop.packed.manifest.packs, held)
    workshop.pack(source, "workspace/y:1", known=[known])
    layer = workshop.read("workspace/y:1")
    check_items(layer, tree)
    assert {path: runs[0][1] for path, runs in layer.runs.items()} == upper
    assert set(below.packs) < set(layer.packs)
    assert layer.table.device_bytes > sum(map(len, upper.values())) + 3 * 4096
    check_packs(layer)


def _parts(workshop: Workshop) -> tuple[ErofsImage, ChunkTable]:
    manifest, config = workshop.packed.manifest, workshop.packed.config
    metadata = unzstd(workshop.store.read(manifest.metadata), config.metadata.size_bytes)
    table = unzstd(workshop.store.read(manifest.table), config.table.size_bytes)
    return ErofsImage(metadata), ChunkTable.decode(table)


@pytest.mark.parametrize("at", [0, 11, 12, -53, -52, -20, -12, -1])
def test_a_damaged_pack_is_refused(workshop: Workshop, at: int) -> None:
    """Its header, first chunk, index, and each field of its footer."""
    data = b"abc" * 999
    (pack,) = workshop.check(Tree.of([file(b"a", data)]), {b"a": data}).packs
    damaged = bytearray(pack)
    damaged[at] ^= 0x40
    with pytest.raises(Refused):
        list(walk_pack(bytes(damaged)))


def test_the_checksum_is_the_known_one() -> None:
    assert crc32c(b"123456789") ^ 0xFFFFFFFF == 0xE3069283
    assert blake3(b"").hexdigest().startswith("af1349b9")
