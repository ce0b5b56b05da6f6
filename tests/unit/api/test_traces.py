"""Traces beside environments in stores: taken over, replaced, ignored when they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.api import moving, traces
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.lazyfs.traces import TraceFiles
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.model.trace import TRACE_ARTIFACT, TRACE_TYPE, LayerTrace, Touch, Trace, of_layers
from dsec_layers.registry.attachments import publish
from tests.support.packed import pack_files

BASE = Reference.parse("base/b:1")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"a": b"a" * 10_000})
    return made


def trace(subject: Descriptor, *chunks: int) -> Trace:
    touches = tuple(Touch(chunk, ms, 1) for ms, chunk in enumerate(chunks))
    return of_layers(subject.digest, [LayerTrace(subject.digest, 1, touches)])


def attach(bench: Workbench, data: bytes) -> None:
    blob = Descriptor.of(data, TRACE_TYPE)
    publish(bench.local, Attachment(TRACE_ARTIFACT, bench.resolve(BASE), (blob,)), data)


def known(bench: Workbench) -> list[int]:
    found = traces.known(bench, bench.resolve(BASE))
    return [touch.chunk for layer in found.layers for touch in layer.touches] if found else []


def test_what_came_with_an_environment_counts_until_there_is_more(bench: Workbench) -> None:
    subject = bench.resolve(BASE)
    attach(bench, trace(subject, 1, 2).encode())
    attach(bench, trace(subject, 2, 3).encode())
    assert known(bench) == [1, 2, 3]
    attach(bench, trace(subject, 9).encode())
    assert known(bench) == [1, 2, 3]  # there is one already
    assert traces.remove(bench, BASE)
    assert known(bench) == []


@pytest.mark.parametrize("wrong", ["nonsense", "of something else"])
def test_a_wrong_one_is_ignored(
    bench: Workbench, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    subject = bench.resolve(BASE)
    other = Descriptor.of(b"other", subject.media_type)
    attach(bench, b"nonsense" if wrong == "nonsense" else trace(other, 1).encode())
    assert known(bench) == []
    assert "it is ignored" in caplog.text
    attach(bench, trace(subject, 4).encode())
    assert known(bench) == [4]
    assert traces.start(bench, subject, None).environment == subject.digest


def test_without_prefetching_nothing_is_taken_over(bench: Workbench) -> None:
    subject = bench.resolve(BASE)
    attach(bench, trace(subject, 1).encode())
    assert traces.start(bench, subject, 0).prefetch_bytes == 0
    assert subject.digest not in TraceFiles(bench.home.root)


def test_a_pushed_trace_takes_the_place_of_the_older(bench: Workbench, tmp_path: Path) -> None:
    url = f"dir://{tmp_path}/far"
    subject = bench.resolve(BASE)
    with pytest.raises(NotFoundError, match="no accesses"):
        traces.push(bench, BASE, url)
    traces.files(bench).add(trace(subject, 1))
    moving.push(bench, BASE, url)
    for chunk in (2, 3):
        traces.push(bench, BASE, url)
        traces.files(bench).add(trace(subject, chunk))
    row = traces.push(bench, BASE, url)
    assert (row.runs, row.chunks) == (3, 3)

    other = Workbench(tmp_path / "other", [url])
    other.resolve(BASE)
    assert sorted(known(other)) == [1, 2, 3]
    assert len(list(other.local.referrers(subject))) == 1


def test_a_store_without_the_environment_takes_no_trace(bench: Workbench, tmp_path: Path) -> None:
    traces.files(bench).add(trace(bench.resolve(BASE), 1))
    Workbench(tmp_path / "far").local  # noqa: B018 - which makes it
    with pytest.raises(NotFoundError, match="is not in"):
        traces.push(bench, BASE, f"dir://{tmp_path}/far/store")


def test_files_are_read_before_anything_is_merged(bench: Workbench, tmp_path: Path) -> None:
    subject = bench.resolve(BASE)
    good = tmp_path / "good"
    good.write_bytes(trace(subject, 1).encode())
    with pytest.raises(InvalidInputError, match="cannot read"):
        traces.merge_files(bench, [good, tmp_path / "missing"])
    assert known(bench) == []
    (row,) = traces.merge_files(bench, [good, good])
    assert (row.environment, row.runs) == (subject.digest, 2)
