from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs import traces
from dsec_layers.lazyfs.recording import Recording
from dsec_layers.lazyfs.traces import Live, TraceFiles
from dsec_layers.lazyfs.tracing import Tracing
from dsec_layers.model.trace import LayerTrace, Touch, Trace, in_order, of_layers
from tests.support.lazy import BLOCK, Rig, device_bytes, read

ENVIRONMENT, OTHER = "sha256:" + "e" * 64, "sha256:" + "f" * 64
LAYER = "sha256:" + "a" * 64


def trace(*chunks: int, environment: str = ENVIRONMENT, layer: str = LAYER) -> Trace:
    touches = tuple(Touch(chunk, ms, 1) for ms, chunk in enumerate(chunks))
    return of_layers(environment, [LayerTrace(layer, 1, touches)])


def chunks(found: Trace | None) -> list[int]:
    return [chunk for _, chunk in in_order(found.layers)] if found else []


@pytest.fixture
def files(tmp_path: Path) -> TraceFiles:
    return TraceFiles(tmp_path)


def test_runs_add_up(files: TraceFiles) -> None:
    assert files.load(ENVIRONMENT) is None
    files.add(trace(1, 2))
    files.add(trace(2, 3))
    found = files.load(ENVIRONMENT)
    assert found is not None
    assert (found.runs, chunks(found)) == (2, [1, 2, 3])
    assert files.environments() == [ENVIRONMENT]
    assert files.remove(ENVIRONMENT)
    assert not files.remove(ENVIRONMENT)


def test_a_layer_is_known_from_another_environment(files: TraceFiles) -> None:
    files.add(trace(1, environment=OTHER))
    part = files.part(ENVIRONMENT, LAYER)
    assert part is not None
    assert [touch.chunk for touch in part.touches] == [1]
    files.add(trace(2))
    part = files.part(ENVIRONMENT, LAYER)
    assert part is not None
    assert [touch.chunk for touch in part.touches] == [2]


def test_a_damaged_trace_is_an_error_or_ignored_or_replaced(
    files: TraceFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files.add(trace(1))
    (path,) = (tmp_path / "traces").glob("*.zst")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptError, match=str(path)):
        files.load(ENVIRONMENT)
    assert files.part(ENVIRONMENT, LAYER) is None
    assert "it is ignored" in caplog.text
    assert chunks(files.add(trace(7))) == [7]


def test_a_trace_under_a_wrong_name_is_corrupt(files: TraceFiles, tmp_path: Path) -> None:
    files.add(trace(1))
    (path,) = (tmp_path / "traces").glob("*.zst")
    path.rename(path.with_name("f" * 64 + ".zst"))
    with pytest.raises(CorruptError, match="is of sha256:eee"):
        files.load(OTHER)


def test_there_are_not_too_many(files: TraceFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_MOST_TRACES", 3)
    for number in range(5):
        files.add(trace(1, environment=f"sha256:{number:064x}"))
    assert len(files.environments()) == 3


def test_a_recording_holds_each_chunk_once_in_order() -> None:
    recording = Recording(ENVIRONMENT, LAYER, 10)
    recording.touch([4, 5])
    recording.touch(range(3, 7))
    assert [touch.chunk for touch in recording.trace().touches] == [4, 5, 3, 6]
    assert recording.unsaved() is not None
    assert recording.unsaved() is None
    recording.close()
    recording.touch([9])
    live = recording.unsaved()
    assert live is not None
    assert live.closed
    resumed = Recording.resumed(live, 10)
    assert resumed.trace() == recording.trace()
    assert resumed.unsaved() is None
    assert len(Recording.resumed(live, 5).trace().touches) == 2  # of a table that has shrunk


class Served:
    """Layers that a daemon serves, with what it records."""

    def __init__(self, folder: Path) -> None:
        self.files = TraceFiles(folder / "home")
        self.tracing = Tracing(self.files)
        self.rig = Rig(folder)
        self.data = device_bytes(8)
        self.device = self.rig.device(self.data, [BLOCK] * 8)
        self.layer = self.device.layer

    def read(self, *numbers: int) -> None:
        for number in numbers:
            read(self.device, number * BLOCK, BLOCK)

    def touched(self, environment: str = ENVIRONMENT) -> list[int]:
        self.tracing.save()
        return chunks(self.files.load(environment))


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def test_hits_and_misses_are_touches(served: Served) -> None:
    served.read(2)
    served.tracing.attached(served.layer, ENVIRONMENT)
    served.read(6, 2, 6, 3)
    served.tracing.detached(served.layer.digest)
    served.read(1)
    served.rig.fetcher.close()
    assert sorted(served.touched()) == [2, 3, 6]
    assert list(served.files.live()) == []


def test_a_run_counts_once_however_often_it_is_saved(served: Served) -> None:
    served.tracing.attached(served.layer, ENVIRONMENT)
    served.read(1)
    assert served.touched() == [1]
    served.read(2)
    assert sorted(served.touched()) == [1, 2]
    served.tracing.detached(served.layer.digest)
    assert sorted(served.touched()) == [1, 2]
    found = served.files.load(ENVIRONMENT)
    assert found is not None
    assert found.runs == 1
    served.rig.fetcher.close()


@pytest.mark.parametrize("environment", [OTHER, ""])
def test_what_two_read_is_not_told_of_one(served: Served, environment: str) -> None:
    served.tracing.attached(served.layer, ENVIRONMENT)
    served.read(1)
    served.tracing.attached(served.layer, ENVIRONMENT)
    served.read(2)
    served.tracing.attached(served.layer, environment)
    served.read(3)
    served.tracing.detached(served.layer.digest)
    assert sorted(served.touched()) == [1, 2]
    assert served.files.environments() == [ENVIRONMENT]
    served.rig.fetcher.close()


def test_a_layer_that_somebody_has_mounted_is_not_recorded(served: Served) -> None:
    served.tracing.attached(served.layer, "")
    served.tracing.attached(served.layer, ENVIRONMENT)
    served.read(1)
    assert served.touched() == []
    served.rig.fetcher.close()


def test_a_successor_goes_on_and_ends_what_is_gone(served: Served) -> None:
    served.tracing.attached(served.layer, ENVIRONMENT)
    served.read(1)
    served.tracing.save()
    gone = LayerTrace("sha256:" + "9" * 64, 1, (Touch(5, 0, 1),))
    served.files.put_live(Live(OTHER, 0, False, gone))

    served.layer.recording = None  # as in another process
    served.tracing = Tracing(served.files)
    served.tracing.start([served.layer])
    served.read(2)
    served.tracing.detached(served.layer.digest)
    assert sorted(served.touched()) == [1, 2]
    assert served.touched(OTHER) == [5]
    assert list(served.files.live()) == []
    served.rig.fetcher.close()


def test_a_damaged_run_is_forgotten(served: Served) -> None:
    served.files.put_live(Live(OTHER, 0, False, LayerTrace(LAYER, 1, (Touch(5, 0, 1),))))
    (path,) = served.files._live.glob("*")
    path.write_bytes(b"{")
    served.tracing.start([])
    assert not path.exists()
    assert served.files.environments() == []
    served.rig.fetcher.close()
