"""Who is let in, and what the node looks at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dsec_runtime.edge.admission import Admission
from dsec_runtime.edge.config import EdgeConfig, parse_listen
from dsec_runtime.edge.metrics import Metrics
from dsec_runtime.edge.pressure import Load, lately, load
from dsec_runtime.errors import InvalidRequestError, OverloadedError

CONFIG = EdgeConfig(
    home=Path("/nowhere"),
    creations=2,
    waiting=3,
    max_sandboxes=10,
    reserve_bytes=100,
    max_pressure=20.0,
)


def admission(now: Load = Load(1000, 0.0)) -> Admission:  # noqa: B008 - a value
    return Admission(CONFIG, Metrics(), lambda: now)


@pytest.mark.parametrize(
    ("now", "live", "why"),
    [
        (Load(99, 0.0), 0, "memory"),
        (Load(1000, 20.5), 0, "pressure"),
        (Load(1000, 0.0), 10, "sandboxes"),
    ],
)
def test_refusals_say_why_and_until_when(now: Load, live: int, why: str) -> None:
    with pytest.raises(OverloadedError) as refused:
        admission(now).check(live)
    assert refused.value.detail["why"] == why
    assert float(refused.value.detail["retry_after_s"] or 0) > 0


def test_up_to_the_bounds_all_are_let_in() -> None:
    admission(Load(100, 20.0)).check(9)


def test_while_draining_nobody_is() -> None:
    made = admission()
    made.draining = True
    with pytest.raises(OverloadedError):
        made.check(0)


async def test_so_many_at_a_time_and_so_many_that_wait() -> None:
    made = admission()
    inside = most = 0
    leave = asyncio.Event()

    async def create() -> None:
        nonlocal inside, most
        async with made.turn():
            inside += 1
            most = max(most, inside)
            await leave.wait()
            inside -= 1

    tasks = []
    for _ in range(5):
        made.check(0)
        tasks.append(asyncio.create_task(create()))
        await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="5 creations wait"):
        made.check(0)
    leave.set()
    await asyncio.gather(*tasks)
    assert (most, made.creating) == (2, 0)
    made.check(0)


def test_the_load_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert load(tmp_path) == Load(2 << 20, 0.0)
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/memory").write_text(
        "some avg10=9.50 avg60=0.00 avg300=0.00 total=1\n"
        "full avg10=3.25 avg60=0.00 avg300=0.00 total=1\n"
    )
    assert load(tmp_path) == Load(2 << 20, 3.25)
    assert load().available_bytes > 0


@pytest.mark.parametrize(
    ("text", "found"), [("0.0.0.0:7", ("0.0.0.0", 7)), ("[::1]:65535", ("::1", 65535))]
)
def test_addresses_to_listen_on(text: str, found: tuple[str, int]) -> None:
    assert parse_listen(text) == found


@pytest.mark.parametrize("text", ["", "a", ":7", "a:", "a:x", "a:70000", "a:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_listen(text)


def test_the_load_is_looked_at_now_and_then() -> None:
    answers, times = iter([Load(1, 0.0), Load(2, 0.0)]), iter([5.0, 5.1, 5.0999, 5.11, 5.2])
    measured = lately(lambda: next(answers), lambda: next(times))
    assert [measured().available_bytes for _ in range(4)] == [1, 1, 2, 2]
