"""What a start will fetch, told from traces before it is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dsec_layers.api import traces
from dsec_layers.api.opened import opened
from dsec_layers.api.workbench import Workbench
from dsec_layers.chunks.table import Chunk, ChunkTable
from dsec_layers.errors import NotFoundError
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.grouping import BATCH_BYTES, grouped, span_bytes
from dsec_layers.model.reference import Reference
from dsec_layers.model.trace import Step, in_order


class LayerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One layer. `wanted` is what its trace touches; the cache of this home has `cached` of it.

    `fetched_bytes` of packs come by `requests` for the rest, which unpack to `plain_bytes`; what
    lies between two chunks and is nearer than a request is worth comes along. `runs` is 0 for a
    layer of which nothing is known. `local`: all its packs are in the local store.
    """

    layer: str
    digest: str
    runs: int
    local: bool
    wanted_chunks: int
    wanted_bytes: int
    cached_chunks: int
    cached_bytes: int
    plain_bytes: int
    fetched_bytes: int
    requests: int


class StartPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All layers, lowest first, and their sum."""

    environment: str
    layers: tuple[LayerPlan, ...]
    total: LayerPlan


def plan(bench: Workbench, reference: Reference) -> StartPlan:
    """Foresee a start of `reference` on this machine, as it would be prefetched without a limit.

    Raises NotFoundError when no accesses are known, CorruptError or StoreError.
    """
    stack = bench.stack(reference)
    digests = [layer.descriptor.digest for layer in stack.layers]
    parts = traces.parts(bench, stack.descriptor, digests)
    if not parts:
        raise NotFoundError(
            f"no accesses of {reference} are known here, nor of its layers",
            hint="`dsec-layers run` or `mount` it: what it reads first is recorded",
        )
    runs = {part.layer: part.runs for part in parts}
    cache = ChunkCache(bench.home.chunks, 0)
    with opened(bench, stack.layers) as layers:
        tables = {layer.digest: layer.table for layer in layers}
        tallies = {digest: _Tally(table) for digest, table in tables.items()}
        missing = []
        for digest, index in in_order(parts):
            if index < len(tables[digest]):
                cached = cache.has(tables[digest][index].digest)
                tallies[digest].count(index, cached=cached)
                if not cached:
                    missing.append((digest, index))
        for batch in _batches(missing, tables):
            for digest, tally in tallies.items():
                tally.fetch([index for layer, index in batch if layer == digest])
    rows = tuple(
        tallies[layer.descriptor.digest].row(
            str(layer),
            layer.descriptor.digest,
            runs.get(layer.descriptor.digest, 0),
            local=all(bench.local.has(pack) for pack in layer.manifest.packs),
        )
        for layer in stack.layers
    )
    return StartPlan(
        environment=stack.descriptor.digest,
        layers=rows,
        total=_total(stack.descriptor.digest, rows),
    )


class _Tally:
    """What is wanted of one layer."""

    def __init__(self, table: ChunkTable) -> None:
        self._table = table
        self._wanted: list[int] = []
        self._cached: list[int] = []
        self._plain = self._fetched = self._requests = 0

    def count(self, index: int, *, cached: bool) -> None:
        self._wanted.append(index)
        if cached:
            self._cached.append(index)

    def fetch(self, indexes: Iterable[int]) -> None:
        chunks = [(index, self._table[index]) for index in indexes]
        self._plain += sum(chunk.length for _, chunk in chunks)
        for group in grouped(chunks):
            self._fetched += span_bytes(group, self._table)
            self._requests += 1

    def row(self, layer: str, digest: str, runs: int, *, local: bool) -> LayerPlan:
        return LayerPlan(
            layer=layer,
            digest=digest,
            runs=runs,
            local=local,
            wanted_chunks=len(self._wanted),
            wanted_bytes=self._bytes(self._wanted),
            cached_chunks=len(self._cached),
            cached_bytes=self._bytes(self._cached),
            plain_bytes=self._plain,
            fetched_bytes=self._fetched,
            requests=self._requests,
        )

    def _bytes(self, indexes: Iterable[int]) -> int:
        return sum(self._table[index].length for index in indexes)


def _batches(steps: Iterable[Step], tables: dict[str, ChunkTable]) -> Iterator[list[Step]]:
    """The steps as they are prefetched, so many bytes at a time."""
    batch: list[Step] = []
    held = 0
    for digest, index in steps:
        chunk: Chunk = tables[digest][index]
        batch.append((digest, index))
        held += chunk.length
        if held >= BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _total(environment: str, rows: tuple[LayerPlan, ...]) -> LayerPlan:
    return LayerPlan(
        layer="total",
        digest=environment,
        runs=max(row.runs for row in rows),
        local=all(row.local for row in rows),
        wanted_chunks=sum(row.wanted_chunks for row in rows),
        wanted_bytes=sum(row.wanted_bytes for row in rows),
        cached_chunks=sum(row.cached_chunks for row in rows),
        cached_bytes=sum(row.cached_bytes for row in rows),
        plain_bytes=sum(row.plain_bytes for row in rows),
        fetched_bytes=sum(row.fetched_bytes for row in rows),
        requests=sum(row.requests for row in rows),
    )
