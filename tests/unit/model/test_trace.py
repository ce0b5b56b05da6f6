from __future__ import annotations

import random

import pytest
import zstandard

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.model import canonical, trace
from dsec_layers.model.trace import LayerTrace, Touch, Trace, in_order, merge, of_layers

ENVIRONMENT = "sha256:" + "e" * 64
BASE, TOOL = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def run(*chunks: int, layer: str = BASE, environment: str = ENVIRONMENT) -> Trace:
    """A run that touched chunks one millisecond after another."""
    touches = tuple(Touch(chunk, ms, 1) for ms, chunk in enumerate(chunks))
    return of_layers(environment, [LayerTrace(layer, 1, touches)])


def order(found: Trace) -> list[int]:
    return [chunk for _, chunk in in_order(found.layers)]


def test_a_trace_survives_its_bytes() -> None:
    made = merge([run(5, 3, 9), run(3, 4, layer=TOOL)])
    assert Trace.decode(made.encode(), what="it") == made
    assert made.encode() == made.encode()
    assert made.part(TOOL) == LayerTrace(TOOL, 1, (Touch(3, 0, 1), Touch(4, 1, 1)))


def test_merging_counts_runs_and_keeps_the_earliest_time() -> None:
    merged = merge([run(7, 8), run(8, 7, 9)])
    assert merged.layers[0].runs == 2
    assert {touch.chunk: (touch.ms, touch.seen) for touch in merged.layers[0].touches} == {
        7: (0, 2),
        8: (0, 2),
        9: (2, 1),
    }


def test_what_one_of_many_runs_touched_goes_to_the_end() -> None:
    merged = merge([run(99, 1, 2)] + [run(1, 2, 3)] * 7)
    assert order(merged) == [1, 2, 3, 99]
    assert order(run(99, 1, 2)) == [99, 1, 2]


def test_what_is_not_touched_any_more_is_forgotten() -> None:
    merged = run(1, 50)
    for _ in range(200):
        merged = merge([merged, run(1)])
    assert order(merged) == [1]
    assert merged.layers[0].runs <= 64


def test_the_order_of_merging_is_no_matter() -> None:
    runs = [run(*random.Random(seed).sample(range(40), 20)) for seed in range(6)]
    merged = merge(runs)
    random.Random(1).shuffle(runs)
    assert merge(runs) == merged
    assert merge([merge(runs[:2]), merge(runs[2:])]) == merged


def test_layers_are_interleaved_by_time() -> None:
    both = of_layers(
        ENVIRONMENT,
        [
            LayerTrace(BASE, 1, (Touch(1, 0, 1), Touch(2, 20, 1))),
            LayerTrace(TOOL, 1, (Touch(1, 10, 1),)),
        ],
    )
    assert list(in_order(both.layers)) == [(BASE, 1), (TOOL, 1), (BASE, 2)]


def test_a_trace_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_TOUCHES", 10)
    assert order(run(*range(20))) == list(range(10))


def test_traces_of_different_environments_are_not_merged() -> None:
    with pytest.raises(InvalidInputError, match="2 environments"):
        merge([run(1), run(1, environment=BASE)])


def packed(value: object) -> bytes:
    return zstandard.compress(canonical.encode(value))


GOOD = {"version": 1, "environment": ENVIRONMENT, "layers": []}
PART = {"layer": BASE, "runs": 1, "touches": [[1, 2, 1]]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no frame",
        run(1).encode()[:-4],
        packed([1]),
        packed({**GOOD, "version": 2}),
        packed({**GOOD, "environment": "../../etc"}),
        packed({**GOOD, "layers": [PART, PART]}),
        packed({**GOOD, "layers": [{**PART, "layer": "x"}]}),
        packed({**GOOD, "layers": [{**PART, "runs": 0}]}),
        packed({**GOOD, "layers": [{**PART, "touches": [[1, 2, 2]]}]}),
        packed({**GOOD, "layers": [{**PART, "touches": [[-1, 2, 1]]}]}),
        packed({**GOOD, "layers": [{**PART, "touches": [[1, 2, 1], [1, 3, 1]]}]}),
        packed({**GOOD, "layers": [{**PART, "touches": [[1, 2]]}]}),
    ],
)
def test_what_is_no_trace_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError, match="the file"):
        Trace.decode(data, what="the file")


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_PLAIN_BYTES", 1000)
    with pytest.raises(CorruptError):
        Trace.decode(zstandard.compress(b" " * 10_000_000), what="it")
