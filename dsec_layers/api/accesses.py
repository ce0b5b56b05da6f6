"""Which files of an environment its trace reaches, and which directories nobody has touched.

The kernel asks for chunks, and small files share one: a file counts as touched as far as the chunks
are that hold it. So what is said to be touched is at least what was read, and what is said to be
untouched was not read in any recorded run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dsec_layers.api import traces
from dsec_layers.api.opened import OpenedLayer, opened, text
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from dsec_layers.model.trace import LayerTrace
from dsec_layers.model.tree import EntryKind


class LayerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """One layer. `touched_bytes` of its device some run touched, `run_bytes` one on the average.

    `share` is `run_bytes` of `device_bytes` in parts of a thousand.
    """

    layer: str
    digest: str
    runs: int
    chunks: int
    touched_chunks: int
    device_bytes: int
    touched_bytes: int
    run_bytes: int
    share: int


class PathAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or all files below a directory, of one layer: its number, 0 the lowest."""

    path: str
    layer: int
    size_bytes: int
    touched_bytes: int


class Accesses(msgspec.Struct, frozen=True, kw_only=True):
    """What runs of an environment have touched.

    `directories` are those down to the depth asked for that hold something touched, `files` those
    that were touched, `untouched` the topmost directories of which nothing was; the largest first.
    """

    environment: str
    runs: int
    layers: tuple[LayerAccess, ...]
    directories: tuple[PathAccess, ...]
    files: tuple[PathAccess, ...]
    untouched: tuple[PathAccess, ...]


def accesses(bench: Workbench, reference: Reference, *, depth: int = 2, most: int = 20) -> Accesses:
    """What is known of `reference`, `most` paths of each kind.

    Layers without a record are left out. Raises NotFoundError when nothing is known, CorruptError
    or StoreError.
    """
    stack = bench.stack(reference)
    trace = traces.required(bench, stack.descriptor, reference)
    rows: list[LayerAccess] = []
    directories: list[PathAccess] = []
    files: list[PathAccess] = []
    untouched: list[PathAccess] = []
    with opened(bench, stack.layers) as layers:
        for number, layer in enumerate(layers):
            part = trace.part(layer.digest)
            if part is None:
                continue
            rows.append(_layer(layer, part))
            found = list(_files(number, layer, part))
            sums = _sums(number, found)
            files += [each for each in found if each.touched_bytes]
            directories += [
                each
                for path, each in sums.items()
                if each.touched_bytes and path.count("/") < depth
            ]
            untouched += _untouched(sums)
    return Accesses(
        environment=stack.descriptor.digest,
        runs=trace.runs,
        layers=tuple(rows),
        directories=_largest(directories, "touched_bytes", most),
        files=_largest(files, "touched_bytes", most),
        untouched=_largest(untouched, "size_bytes", most),
    )


def _layer(layer: OpenedLayer, part: LayerTrace) -> LayerAccess:
    table = layer.table
    touches = [touch for touch in part.touches if touch.chunk < len(table)]
    lengths = [table[touch.chunk].length for touch in touches]
    counts = (touch.seen * length for touch, length in zip(touches, lengths, strict=True))
    run_bytes = sum(counts) // part.runs
    return LayerAccess(
        layer=str(layer.layer),
        digest=layer.digest,
        runs=part.runs,
        chunks=len(table),
        touched_chunks=len(touches),
        device_bytes=table.device_bytes,
        touched_bytes=sum(lengths),
        run_bytes=run_bytes,
        share=run_bytes * 1000 // table.device_bytes if table.device_bytes else 0,
    )


def _files(number: int, layer: OpenedLayer, part: LayerTrace) -> Iterator[PathAccess]:
    """The files of a layer, one with several names by the first of them."""
    touched = {touch.chunk for touch in part.touches}
    groups: set[int] = set()
    for entry in layer.tree:
        if entry.kind is not EntryKind.FILE or entry.link_group in groups:
            continue
        if entry.link_group:
            groups.add(entry.link_group)
        reached = sum(
            _reached(layer, touched, extent.device_offset, extent.length)
            for extent in layer.extents(entry.path)
        )
        yield PathAccess(
            path="/" + text(entry.path),
            layer=number,
            size_bytes=entry.size,
            touched_bytes=min(reached, entry.size),
        )


def _reached(layer: OpenedLayer, touched: set[int], offset: int, length: int) -> int:
    end, table = offset + length, layer.table
    chunks = [table[index] for index in table.covering(offset, length) if index in touched]
    return sum(min(end, chunk.device_end) - max(offset, chunk.device_offset) for chunk in chunks)


def _sums(number: int, files: list[PathAccess]) -> Mapping[str, PathAccess]:
    """All directories with files below them."""
    totals: dict[str, tuple[int, int]] = {}
    for file in files:
        parent = file.path
        while parent:
            parent = parent.rpartition("/")[0]
            size, touched = totals.get(parent, (0, 0))
            totals[parent] = size + file.size_bytes, touched + file.touched_bytes
    return {
        path: PathAccess(path=path or "/", layer=number, size_bytes=size, touched_bytes=touched)
        for path, (size, touched) in totals.items()
    }


def _untouched(sums: Mapping[str, PathAccess]) -> Iterator[PathAccess]:
    """Directories of which nothing was touched, but something of the one above."""
    for path, each in sums.items():
        above = sums[path.rpartition("/")[0]] if path else None
        if each.touched_bytes or not each.size_bytes:
            continue
        if above is None or above.touched_bytes:
            yield each


def _largest(found: list[PathAccess], by: str, most: int) -> tuple[PathAccess, ...]:
    found.sort(key=lambda each: (-getattr(each, by), each.path, each.layer))
    return tuple(found[:most])


def total(found: Accesses) -> LayerAccess:
    """The sum of all layers."""
    layers = found.layers
    device_bytes = sum(layer.device_bytes for layer in layers)
    run_bytes = sum(layer.run_bytes for layer in layers)
    return LayerAccess(
        layer="total",
        digest=found.environment,
        runs=found.runs,
        chunks=sum(layer.chunks for layer in layers),
        touched_chunks=sum(layer.touched_chunks for layer in layers),
        device_bytes=device_bytes,
        touched_bytes=sum(layer.touched_bytes for layer in layers),
        run_bytes=run_bytes,
        share=run_bytes * 1000 // device_bytes if device_bytes else 0,
    )
