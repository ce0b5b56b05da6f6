"""What an environment reads first: which chunks of which layer, in which order, how regularly.

The format is described in docs/formats/trace.md.

The part of a layer names that layer by digest, so it serves any environment with the same layer.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import msgspec
import zstandard

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest

TRACE_ARTIFACT: Final = "application/vnd.dsec.trace.v1"
TRACE_TYPE: Final = "application/vnd.dsec.trace.v1+json+zstd"
TRACE_VERSION: Final = 1
MAX_TOUCHES: Final = 65_536  # of a layer: with usual chunks, 8 GB
MAX_LAYERS: Final = 500
MAX_PLAIN_BYTES: Final = 32 << 20
MAX_STORED_BYTES: Final = 16 << 20
_MAX_RUNS: Final = 64
_REGULAR_SHARE: Final = 4  # one run in so many

Step = tuple[str, int]  # the digest of a layer, the number of a chunk of it


class Touch(msgspec.Struct, frozen=True, array_like=True):
    """Chunk number `chunk` was first read `ms` after its layer was mounted, in `seen` runs."""

    chunk: int
    ms: int
    seen: int


class LayerTrace(msgspec.Struct, frozen=True):
    """The touches of one layer, in order, out of `runs` runs."""

    layer: str
    runs: int
    touches: tuple[Touch, ...]

    def rank(self, touch: Touch) -> tuple[int, int]:
        """What comes first has the lower rank.

        By time comes what at least a fourth of the runs touched; behind it the rest, by how many
        did. So what one of many runs touched goes to the end.
        """
        if touch.seen * _REGULAR_SHARE >= self.runs:
            return 0, touch.ms
        return self.runs - touch.seen, touch.ms


class Trace(msgspec.Struct, frozen=True):
    """What is known of `environment`, the digest of what was mounted: an index or a manifest."""

    version: int
    environment: str
    layers: tuple[LayerTrace, ...]

    @property
    def runs(self) -> int:
        """Of the layer that was recorded most often."""
        return max((layer.runs for layer in self.layers), default=0)

    def part(self, layer: str) -> LayerTrace | None:
        """The touches of the layer with this digest."""
        return next((each for each in self.layers if each.layer == layer), None)

    def encode(self) -> bytes:
        """Canonical JSON in a zstd frame."""
        return zstandard.ZstdCompressor().compress(canonical.encode(self))

    @classmethod
    def decode(cls, data: bytes, *, what: str) -> Trace:
        """Parse a trace. Raises CorruptError naming `what`."""
        reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data))
        try:
            plain = reader.read(MAX_PLAIN_BYTES + 1)  # never more, whatever it would unpack to
        except zstandard.ZstdError as error:
            raise CorruptError(f"{what} does not unpack: {error}") from error
        trace = canonical.decode(plain, cls, what=what)
        problem = _problem(trace)
        if problem:
            raise CorruptError(f"{what} is malformed: {problem}")
        return trace


def of_layers(environment: str, layers: Iterable[LayerTrace]) -> Trace:
    """The trace of an environment out of parts; those of one layer are merged."""
    parts = sorted(layers, key=lambda part: part.layer)
    merged = (_merge(list(same)) for _, same in groupby(parts, key=lambda part: part.layer))
    kept = tuple(part for part in merged if part.touches)
    return Trace(TRACE_VERSION, environment, kept[:MAX_LAYERS])


def merge(traces: Iterable[Trace]) -> Trace:
    """One trace out of several of the same environment; see docs/formats/trace.md.

    Raises InvalidInputError when they are of different ones, or when there is none.
    """
    given = list(traces)
    environments = {trace.environment for trace in given}
    if len(environments) != 1:
        raise InvalidInputError(
            f"traces of {len(environments)} environments cannot be merged into one"
        )
    return of_layers(environments.pop(), (part for trace in given for part in trace.layers))


def _merge(parts: list[LayerTrace]) -> LayerTrace:
    runs = sum(part.runs for part in parts)
    ms: dict[int, int] = {}
    seen: dict[int, int] = {}
    for touch in (touch for part in parts for touch in part.touches):
        ms[touch.chunk] = min(touch.ms, ms.get(touch.chunk, touch.ms))
        seen[touch.chunk] = seen.get(touch.chunk, 0) + touch.seen
    while runs > _MAX_RUNS:
        runs //= 2
        seen = {chunk: count // 2 for chunk, count in seen.items()}
    touches = [Touch(chunk, ms[chunk], min(seen[chunk], runs)) for chunk in ms if seen[chunk]]
    part = LayerTrace(parts[0].layer, runs, ())
    touches.sort(key=lambda touch: (part.rank(touch), touch.chunk))
    return LayerTrace(part.layer, runs, tuple(touches[:MAX_TOUCHES]))


def in_order(parts: Iterable[LayerTrace]) -> Iterator[Step]:
    """The chunks of several layers, in the order in which a start wants them."""
    ranked = [
        (part.rank(touch), part.layer, touch.chunk) for part in parts for touch in part.touches
    ]
    return ((layer, chunk) for _, layer, chunk in sorted(ranked))


def _problem(trace: Trace) -> str:
    if trace.version != TRACE_VERSION:
        return f"version {trace.version} is not {TRACE_VERSION}"
    digests = [part.layer for part in trace.layers]
    if len(set(digests)) != len(digests) or len(digests) > MAX_LAYERS:
        return "a layer is named twice, or there are too many"
    try:
        for digest in (trace.environment, *digests):
            Digest.parse(digest)
    except InvalidInputError as error:
        return error.message
    bad = next((part for part in trace.layers if not _sound(part)), None)
    return f"the part of {bad.layer} has impossible counts" if bad else ""


def _sound(part: LayerTrace) -> bool:
    if not 0 < part.runs <= _MAX_RUNS or len(part.touches) > MAX_TOUCHES:
        return False
    if len({touch.chunk for touch in part.touches}) != len(part.touches):
        return False
    return all(
        0 <= touch.chunk < 1 << 32 and 0 <= touch.ms < 1 << 48 and 0 < touch.seen <= part.runs
        for touch in part.touches
    )
