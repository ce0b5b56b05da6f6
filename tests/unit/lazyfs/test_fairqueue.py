from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.lazyfs.fairqueue import FairQueue


def test_owners_take_turns() -> None:
    queue: FairQueue[str, int, str] = FairQueue()
    for number in range(5):
        queue.push("greedy", number, f"greedy {number}")
    queue.push("modest", 0, "modest 0")
    assert [queue.pop() for _ in range(6)] == [
        "greedy 0",
        "modest 0",
        "greedy 1",
        "greedy 2",
        "greedy 3",
        "greedy 4",
    ]
    assert not queue
    with pytest.raises(KeyError):
        queue.pop()


def test_what_is_urgent_goes_first_and_may_become_so() -> None:
    queue: FairQueue[str, int, str] = FairQueue()
    queue.push("a", 1, "a1", urgent=False)
    queue.push("a", 2, "a2", urgent=False)
    queue.push("b", 1, "b1")
    queue.hurry("a", 2)
    queue.hurry("a", 7)
    queue.hurry("b", 1)
    assert [queue.pop() for _ in range(3)] == ["b1", "a2", "a1"]


def test_taking_out_of_turn() -> None:
    queue: FairQueue[str, int, str] = FairQueue()
    queue.push("a", 1, "a1")
    queue.push("a", 2, "a2", urgent=False)
    assert queue.take("a", 2) == "a2"
    assert queue.take("a", 2) is None
    assert queue.take("c", 2) is None
    assert len(queue) == 1
    assert queue.clear() == ["a1"]
    assert not queue


PUSHES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40)


@given(PUSHES)
def test_nothing_is_lost_and_nobody_waits_for_more_than_one_turn_of_each(
    pushes: list[tuple[str, bool]],
) -> None:
    queue: FairQueue[str, int, tuple[str, int, bool]] = FairQueue()
    for number, (owner, urgent) in enumerate(pushes):
        queue.push(owner, number, (owner, number, urgent), urgent=urgent)
    popped = [queue.pop() for _ in pushes]
    assert sorted(number for _, number, _ in popped) == list(range(len(pushes)))
    urgencies = [urgent for _, _, urgent in popped]
    assert urgencies == sorted(urgencies, reverse=True)
    for urgent in (True, False):
        level = [(owner, number) for owner, number, each in popped if each is urgent]
        for owner in "abc":
            places = [place for place, each in enumerate(level) if each[0] == owner]
            numbers = [level[place][1] for place in places]
            assert numbers == sorted(numbers)
            assert all(later - earlier <= 3 for earlier, later in pairwise(places))
