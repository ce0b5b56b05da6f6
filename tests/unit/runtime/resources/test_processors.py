"""Processors are shared out evenly, and none below the limit is kept from a sandbox."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.resources.processors import Processors
from tests.support.profiles import fewer


@fewer
@given(wanted=st.lists(st.floats(0.1, 9.0), max_size=20), count=st.integers(1, 8))
def test_as_many_as_the_limit_and_evenly(wanted: list[float], count: int) -> None:
    processors = Processors(range(count))
    users = dict.fromkeys(range(count), 0)
    for number, cores in enumerate(wanted):
        taken = processors.take(str(number), cores)
        if math.ceil(cores) >= count:
            assert taken is None
            continue
        assert taken is not None
        assert len(set(taken)) == math.ceil(cores)
        for cpu in taken:
            users[cpu] += 1
        assert max(users.values()) - min(users.values()) <= 1


def test_what_is_released_is_free_again() -> None:
    processors = Processors([4, 7])
    assert processors.take("a", 1) == (4,)
    assert processors.take("b", 0.5) == (7,)
    processors.release("b")
    processors.release("b")
    assert processors.take("c", 1) == (7,)


def test_what_another_process_gave_is_counted_once() -> None:
    processors = Processors([0, 1])
    for _ in range(2):
        processors.know("a", (0,))
    assert processors.take("b", 1) == (1,)
    assert processors.take("c", 1) == (0,)


def test_no_limit_is_all() -> None:
    assert Processors([0, 1]).take("a", None) is None
    assert Processors([0, 1]).all == (0, 1)
