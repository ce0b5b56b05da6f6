"""Layers written anew in the order of a trace."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dsec_layers.api import composing, contents, traces
from dsec_layers.api.foreseeing import plan
from dsec_layers.api.rearranging import rearrange
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.model.reference import Reference
from dsec_layers.model.trace import LayerTrace, Touch, of_layers
from tests.support.packed import pack_files

BASE, TOOL = Reference.parse("base/b:1"), Reference.parse("toolkit/t:1")
ENV, NEW = Reference.parse("env/e:1"), Reference.parse("env/e:by-trace")
FILES = {f"{number:02}": random.Random(number).randbytes(1 << 20) for number in range(12)}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, FILES)
    pack_files(made, TOOL, {"tool": b"tool"}, base=made.resolve(BASE))
    composing.compose(made, [BASE, TOOL], ENV)
    return made


def base_of(bench: Workbench, reference: Reference) -> MountLayer:
    return bench.stack(reference).layers[0]


def know(bench: Workbench, paths: list[str], environment: Reference = ENV) -> list[int]:
    """A trace of runs that read these files of the base; the numbers of their chunks."""
    layer = base_of(bench, environment)
    table = contents.table_of(layer)
    with contents.opened(bench, [layer]) as (image,):
        extents = [extent for path in paths for extent in image.extents(path.encode())]
    chunks = [
        index for extent in extents for index in table.covering(extent.device_offset, extent.length)
    ]
    touches = tuple(Touch(chunk, ms, 1) for ms, chunk in enumerate(dict.fromkeys(chunks)))
    part = LayerTrace(layer.descriptor.digest, 1, touches)
    traces.files(bench).add(of_layers(bench.resolve(environment).digest, [part]))
    return [touch.chunk for touch in touches]


def content(bench: Workbench, layer: MountLayer) -> dict[str, bytes]:
    MetadataImages(bench.home.root).ensure(layer)
    with contents.opened(bench, [layer]) as (image,):
        return {
            path: b"".join(contents.read_file(layer, image, image.stat(path.encode())))
            for path in FILES
        }


def test_what_is_read_first_lies_together_and_all_else_stays(bench: Workbench) -> None:
    chunks = know(bench, ["11", "03", "07"])
    before = plan(bench, ENV).total
    done = rearrange(bench, ENV, NEW)
    old, new = base_of(bench, ENV), base_of(bench, NEW)
    assert (old.digest != new.digest, done.after) == (True, bench.resolve(NEW).digest)
    assert new.config.tree_digest == old.config.tree_digest
    assert new.manifest.metadata == old.manifest.metadata
    table = contents.table_of(new)
    assert [c.digest for c in table] == [c.digest for c in contents.table_of(old)]
    packs = {table[index].pack for index in chunks}
    assert len(packs) == 1
    assert {c.pack for index, c in enumerate(table) if index not in chunks}.isdisjoint(packs)
    assert content(bench, new) == FILES
    after = plan(bench, NEW).total
    assert after.wanted_bytes == before.wanted_bytes
    assert after.requests < before.requests
    assert bench.stack(NEW).layers[1].digest == bench.stack(ENV).layers[1].digest
    assert [row.written_bytes for row in done.layers] == [done.written_bytes]


def test_a_layer_alone_moves_its_tag(bench: Workbench) -> None:
    know(bench, ["05"])
    before = bench.resolve(BASE)
    done = rearrange(bench, BASE)
    assert (done.before, done.after) == (before.digest, bench.resolve(BASE).digest)
    assert done.before != done.after
    assert base_of(bench, ENV).digest == before.parsed_digest  # which goes on needing the old one
    assert content(bench, bench.layer(bench.resolve(BASE))) == FILES


def test_the_same_trace_gives_the_same_layer(bench: Workbench) -> None:
    know(bench, ["05", "01"])
    first = rearrange(bench, ENV, NEW)
    again = rearrange(bench, ENV, Reference.parse("env/e:again"))
    assert first.after == again.after


def test_what_is_not_known_or_no_tag_is_refused(bench: Workbench) -> None:
    with pytest.raises(NotFoundError, match="no accesses"):
        rearrange(bench, ENV, NEW)
    know(bench, ["05"])
    with pytest.raises(InvalidInputError, match="no tag"):
        rearrange(bench, ENV, BASE)
