"""What is counted, measured and logged."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

import pytest

from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import InvalidInputError, StoreError
from dsec_layers.lazyfs import settings
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.figures import BOUNDS_S, Histogram
from dsec_layers.lazyfs.logs import JsonFormatter, Sparing, TextFormatter, fields
from dsec_layers.lazyfs.metadata import unpacked_metadata
from dsec_layers.lazyfs.metrics import _labels
from dsec_layers.lazyfs.readtimes import ReadTimes, SlowRead
from dsec_layers.lazyfs.service import Options
from dsec_layers.lazyfs.slowreads import MOST_LINES, SlowReads, files_at
from dsec_layers.registry.directory import DirectoryStore
from tests.support.layers import file_tree, pack_tree
from tests.support.lazy import BLOCK, Rig, device_bytes


def test_durations_are_counted_below_their_bounds() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.0001, 0.3, 1000.0):
        histogram.observe(seconds)
    counts, sum_s = histogram.cumulated()
    assert len(counts) == len(BOUNDS_S) + 1
    assert counts[0] == 2
    assert counts[BOUNDS_S.index(0.5)] == 3
    assert counts[-2:] == [3, 4]
    assert sum_s == pytest.approx(1000.3001)
    assert counts == sorted(counts)


def test_reads_are_timed_and_slow_ones_told(tmp_path: Path) -> None:
    told: list[SlowRead] = []
    times = ReadTimes(0.0, told.append)
    rig = Rig(tmp_path)
    try:
        plain = rig.device(data := device_bytes(2), [BLOCK] * 2)
        device = LayerDevice(plain.layer, rig.fetcher, times)
        assert b"".join(device.read(0, BLOCK)) == data[:BLOCK]
    finally:
        rig.fetcher.close()
    assert times.seconds.cumulated()[0][-1] == len(told) == 1
    assert (told[0].offset, told[0].length, told[0].error) == (0, BLOCK, "")
    times.ended(plain.layer, 0, 1, 0.0, StoreError("down"))
    assert times.errors == {"StoreError": 1}
    assert told[1].error == "down"


def record(message: str, **values: object) -> logging.LogRecord:
    made = logging.LogRecord("dsec_layers.x", logging.WARNING, "f", 1, message, (), None)
    made.__dict__.update(fields(**values))
    return made


def test_log_lines_for_programs_and_for_people() -> None:
    made = record("a read waited", event="slow-read", seconds=2.5)
    parsed = json.loads(JsonFormatter().format(made))
    assert parsed["event"] == "slow-read"
    assert (parsed["level"], parsed["message"], parsed["seconds"]) == (
        "warning",
        "a read waited",
        2.5,
    )
    assert TextFormatter().format(made).endswith("WARNING a read waited")
    assert "\n" not in JsonFormatter().format(record("two\nlines"))


def test_stores_are_named_without_what_is_secret() -> None:
    assert _labels("s3://me:word@bucket/prefix?endpoint=http://127.0.0.1:1") == (
        "s3",
        "s3://bucket/prefix",
    )
    assert _labels("dir:///srv/store") == ("dir", "dir:///srv/store")
    assert _labels("/srv/store") == ("dir", "/srv/store")


def test_the_environment_tunes_and_flags_override_it() -> None:
    parser = argparse.ArgumentParser()
    settings.add_flags(parser)
    told = {settings.CACHE_LIMIT: "5", settings.SLOW_READ: "2.5", settings.DEADLINE: "7"}
    options = settings.tuned(Options(), told, parser.parse_args(["--slow-read", "3"]))
    assert (options.cache_limit_bytes, options.slow_read_s) == (5, 3.0)
    assert options.store.deadline_s == 7
    assert settings.tuned(Options(), {}) == Options()
    for wrong in (
        {settings.CACHE_LIMIT: "much"},
        {settings.SLOW_READ: "-1"},
        {settings.THREADS: "0"},
        {settings.DEADLINE: "nan"},
        {settings.LOG_FORMAT: "xml"},
    ):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            settings.tuned(Options(), wrong)


def test_more_slow_reads_than_are_logged_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path)
    try:
        layer = rig.device(device_bytes(4), [BLOCK] * 4).layer
        slow = SlowReads(tmp_path)
        with caplog.at_level(logging.INFO, "dsec_layers"):
            for _ in range(MOST_LINES + 3):
                slow.note(SlowRead(layer, BLOCK, BLOCK, 1.5, ""))
            slow.flush()
            slow.flush()
    finally:
        rig.fetcher.close()
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == MOST_LINES + 1
    assert "unknown files" in warnings[0].getMessage()  # there is no metadata here
    assert warnings[-1].getMessage() == "3 more reads were slow"


def test_the_files_of_a_range_of_the_device(tmp_path: Path) -> None:
    files = {b"d/%d" % number: device_bytes(3, seed=number) for number in range(5)}
    store = DirectoryStore.open(tmp_path / "store", create=True)
    layer = pack_tree(*file_tree({**files, b"empty": b""}), store, tmp_path)
    with ErofsImage(b"".join(unpacked_metadata(layer))) as image:
        places = {path: image.extents(path)[0].device_offset for path in files}
        ranges = [(place, 1) for place in places.values()]
        assert files_at(image, ranges) == [[f"/{path.decode()}"] for path in files]
        first, second, *_ = sorted(places, key=places.__getitem__)
        both = (places[first] + BLOCK, places[second] - places[first])
        assert files_at(image, [both]) == [[f"/{first.decode()}", f"/{second.decode()}"]]
        assert files_at(image, [(image.device_blocks * BLOCK, BLOCK)]) == [[]]
        assert files_at(image, []) == []


def test_a_flood_of_one_kind_is_dammed_and_counted() -> None:
    sparing = Sparing(some=2, some_s=10)
    lines = [record("chunk %d") for _ in range(5)]
    for number, line in enumerate(lines):
        line.created = float(number)
    assert [sparing.filter(line) for line in lines] == [True, True, False, False, False]
    assert sparing.filter(record("something else"))
    later = record("chunk %d", event="x")
    later.created = 11.0
    assert sparing.filter(later)
    told = json.loads(JsonFormatter().format(later))
    assert (told["left_out"], told["event"]) == (3, "x")
