"""What a reader written from docs/formats alone reads is what was packed, in every field."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from dsec_layers.builder.borrowing import copied_up
from dsec_layers.builder.pack import PackedLayer, pack_layer
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.chunks.table import Chunk, ChunkTable
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.model import canonical
from dsec_layers.model.content import Content, LocalFile, Source
from dsec_layers.model.environment import Environment
from dsec_layers.model.manifest import Descriptor, Provenance
from dsec_layers.model.merge import apply
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig, merge
from dsec_layers.model.tree import Entry, EntryKind, Tree, sparse_content_hasher
from dsec_layers.registry.directory import DirectoryStore
from tests.support import stranger, trees
from tests.support.stranger_erofs import crc32c
from tests.support.stranger_parts import Refused, compose, open_chunk, unzstd, walk_pack

FILE, DIRECTORY, CHAR = EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.CHAR
CONFIG_MEMBERS = set(
    ["kind", "metadata", "name", "provenance", "run", "sizes", "table", "tree_digest"]
)
INPUTS = {"é": '\u2028\x7f\x01"\\', "\U0001f600": "", "\ue000": "/"}
MARKER, OPAQUE = b"trusted.overlay.whiteout", b"trusted.overlay.opaque"


class Workshop:
    """A store in a directory, layers packed into it, and the stranger who reads it."""

    def __init__(self, folder: Path) -> None:
        self.store = DirectoryStore.open(folder / "store", create=True)
        self.stranger = stranger.Store(folder / "store")
        self._work = folder / "work"
        self._work.mkdir()

    def source(self, tree: Tree, contents: trees.Contents) -> Source:
        places: dict[bytes, Content] = {}
        for path, data in contents.items():
            place = os.fsencode(self._work / f"{len(list(self._work.iterdir()))}")
            trees.write_sparse(place, data)
            places[path] = LocalFile(place)
        return Source(Tree.of(replace(entry, digest=b"") for entry in tree), places)

    def pack(
        self,
        source: Source,
        name: str = "base/x:1",
        run: RunConfig = RunConfig(),  # noqa: B008 (frozen)
        known: Sequence[KnownLayer] = (),
        base: str = "",
    ) -> Descriptor:
        """Pack a layer and tag it as `name`."""
        reference = Reference.parse(name)
        layer = pack_layer(
            source,
            kind=reference.kind,
            name=reference.name,
            store=self.store,
            work_dir=self._work,
            run=run,
            provenance=Provenance(source="a test", inputs=INPUTS, base=base),
            known=known,
        )
        self.packed: PackedLayer = layer
        self.store.tag(reference, layer.manifest.descriptor())
        return layer.manifest.descriptor()

    def read(self, name: str = "base/x:1") -> stranger.Layer:
        return stranger.read_layer(self.stranger, self.stranger.resolve(name))

    def check(self, tree: Tree, contents: trees.Contents) -> stranger.Layer:
        """Pack it, and compare all that the stranger finds with it; `tree` has its digests."""
        descriptor = self.pack(self.source(tree, contents))
        layer = self.read()
        assert layer.digest == descriptor.digest
        assert layer.config.keys() == CONFIG_MEMBERS
        assert layer.config["tree_digest"] == str(tree.digest())
        check_items(layer, tree)
        runs = {
            path: [(at, data[at : at + length]) for at, length in trees.data_runs(data)]
            for path, data in contents.items()
        }
        assert layer.runs == runs
        check_packs(layer)
        return layer


def check_items(layer: stranger.Layer, tree: Tree) -> None:
    assert [vars(item) for item in layer.items] == [asdict(entry) for entry in tree]


def check_packs(layer: stranger.Layer) -> None:
    """Packs without the table hold all chunks that the table names."""
    for number, pack in enumerate(layer.packs):
        found = {digest: len(data) for digest, data in walk_pack(pack)}
        named = {r.digest: r.length for r in layer.table.records if r.pack == number}
        assert named.items() <= found.items()


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def file(path: bytes, data: bytes, **fields: object) -> Entry:
    entry = Entry(path=path, kind=FILE, size=len(data), digest=trees.content_digest(data))
    return replace(entry, **fields)


def folder(path: bytes, **fields: object) -> Entry:
    return replace(Entry(path=path, kind=DIRECTORY), **fields)


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


RUNS = [
    RunConfig(
        env={"PATH": "/usr/bin:/bin", "A": "1", "LD_LIBRARY_PATH": ""},
        workdir="/",
        user="root",
        entrypoint=("sh",),
        cmd=("-c", "é"),
        labels={"a": "1", "b": "1"},
    ),
    RunConfig(
        env={"PATH": "/opt/bin::/bin", "A": "2", "LD_LIBRARY_PATH": "/lib:"},
        workdir="",
        entrypoint=(),
        shell=("bash", "-c"),
        labels={"b": "2"},
    ),
    RunConfig(env={"MANPATH": ":/man:"}, cmd=(), shell=(), user=""),
]


def test_an_environment(workshop: Workshop) -> None:
    names = ["base/deb/ian:12", "workspace/w:latest", "toolkit/t__t:1"]
    layers = []
    for name, wish in zip(names, RUNS, strict=True):
        data = name.encode()
        source = workshop.source(Tree.of([file(b"f", data)]), {b"f": data})
        layers.append((Reference.parse(name).kind, name, workshop.pack(source, name, wish)))
    environment = Environment.of(layers[::-1], merge(RUNS))
    descriptor = environment.descriptor()
    workshop.store.put(descriptor, environment.encode())
    workshop.store.tag(Reference.parse("env/e"), descriptor)
    at = f"@{descriptor.digest}"
    for name in ("env/e", "env/e:latest", f"env/e{at}", f"env/e:latest{at}"):
        found, run = stranger.read_stack(workshop.stranger, name)
        assert [layer.digest for layer in found] == [layer.digest for _, _, layer in layers]
        assert [layer.runs[b"f"][0][1].decode() for layer in found] == names
        assert canonical.encode(merge(RUNS)) == stranger.canonical(run)


def test_a_layer_by_its_digest_alone(workshop: Workshop) -> None:
    descriptor = workshop.pack(Source(Tree.of([])))
    assert workshop.read(f"base/any@{descriptor.digest}").digest == descriptor.digest


def test_a_tag_that_has_moved_is_refused(workshop: Workshop) -> None:
    first = workshop.pack(Source(Tree.of([])))
    workshop.pack(Source(Tree.of([folder(b"d")])))
    with pytest.raises(Refused):
        workshop.read(f"base/x:1@{first.digest}")


@settings(max_examples=25)
@given(trees.trees(changes=False, max_inodes=6), trees.trees(max_inodes=6))
def test_layers_compose_as_described(
    below: tuple[Tree, trees.Contents], above: tuple[Tree, trees.Contents]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        workshop = Workshop(Path(place))
        base = workshop.pack(workshop.source(*below), "base/b", RUNS[0])
        workshop.pack(workshop.source(*above), "workspace/w", RUNS[1], base=base.digest)
        (lower, upper), run = stranger.read_stack(workshop.stranger, "workspace/w")
        items = compose(lower.items, upper.items)
        assert [vars(item) for item in items] == [asdict(e) for e in apply(below[0], above[0])]
        assert stranger.canonical(run) == canonical.encode(merge(RUNS[:2]))


_words = st.sampled_from(["", "a", "/b:", "c:a", "é"])
_commands = st.one_of(st.none(), st.lists(_words, max_size=2).map(tuple))
_runs = st.builds(
    RunConfig,
    env=st.dictionaries(st.sampled_from(["PATH", "A", "GOPATH"]), _words),
    workdir=st.one_of(st.none(), _words),
    user=st.one_of(st.none(), _words),
    entrypoint=_commands,
    cmd=_commands,
    shell=_commands,
    labels=st.dictionaries(_words, _words),
)


@given(st.lists(_runs, max_size=4))
def test_run_configurations_merge_as_described(runs: list[RunConfig]) -> None:
    documents = [json.loads(canonical.encode(run)) for run in runs]
    assert stranger.canonical(stranger.merge_runs(documents)) == canonical.encode(merge(runs))


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(-(2**70), 2**70))))
def test_canonical_json_as_described(value: dict[str, object]) -> None:
    assert stranger.canonical(value) == canonical.encode(value)


def test_the_checksum_is_the_known_one() -> None:
    assert crc32c(b"123456789") ^ 0xFFFFFFFF == 0xE3069283
    assert blake3(b"").hexdigest().startswith("af1349b9")
