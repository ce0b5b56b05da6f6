"""Layers packed into a store in a directory, and what the stranger reads held against them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict, replace

from dsec_layers.builder.pack import PackedLayer, pack_layer
from dsec_layers.chunks.packs import KnownLayer
from dsec_layers.model.content import Content, LocalFile, Source
from dsec_layers.model.manifest import Descriptor, Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.registry.directory import DirectoryStore
from tests.support import stranger, trees
from tests.support.stranger_parts import walk_pack

CONFIG_MEMBERS = {"kind", "metadata", "name", "provenance", "run", "sizes", "table", "tree_digest"}
INPUTS = {"é": '\u2028\x7f\x01"\\', "\U0001f600": "", "\ue000": "/"}

FILE, DIRECTORY = EntryKind.FILE, EntryKind.DIRECTORY


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


def file(path: bytes, data: bytes, **fields: object) -> Entry:
    entry = Entry(path=path, kind=FILE, size=len(data), digest=trees.content_digest(data))
    return replace(entry, **fields)


def folder(path: bytes, **fields: object) -> Entry:
    return replace(Entry(path=path, kind=DIRECTORY), **fields)
