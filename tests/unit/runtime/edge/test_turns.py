"""Turns: never more than there are, none lost, and nobody is starved by the many of another."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.edge.turns import Turns

pytestmark = pytest.mark.anyio
_LONG_S = 60.0


class Asking:
    """Somebody who asks for a turn, and holds it until told otherwise."""

    def __init__(self, turns: Turns, who: str, order: list[str]) -> None:
        self.who, self._order = who, order
        self.has = False
        self._go = asyncio.Event()
        self.task = asyncio.create_task(self._ask(turns))

    async def _ask(self, turns: Turns) -> None:
        async with turns.turn(self.who, _LONG_S):
            self.has = True
            self._order.append(self.who)
            await self._go.wait()
            self.has = False

    async def end(self) -> None:
        self._go.set()
        await self.task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_whoever_has_the_fewest_is_next() -> None:
    turns, order = Turns(2), list[str]()
    many = [Asking(turns, "many", order) for _ in range(6)]
    await settle()
    few = [Asking(turns, "few", order) for _ in range(2)]
    await settle()
    assert (order, turns.waiting) == (["many", "many"], 6)
    for each in many[:2]:
        await each.end()
        await settle()
    assert order == ["many", "many", "few", "many"]
    await few[0].end()
    await settle()
    assert order[4:] == ["few"]
    for each in (many[2], few[1], *many[3:]):
        await each.end()
        await settle()
    assert turns.waiting == 0


async def test_who_leaves_takes_no_turn_along() -> None:
    turns, order = Turns(1), list[str]()
    first, second, third = (Asking(turns, who, order) for who in "abc")
    await settle()
    second.task.cancel()
    await settle()
    await first.end()
    await settle()
    assert order == ["a", "c"]
    fourth = Asking(turns, "d", order)
    await settle()
    third._go.set()  # its turn comes to the fourth in the moment in which that leaves
    await asyncio.sleep(0)
    fourth.task.cancel()
    await settle()
    fifth = Asking(turns, "e", order)
    await settle()
    assert fifth.has
    await fifth.end()


async def test_patience_ends() -> None:
    turns = Turns(1)
    async with turns.turn("a", _LONG_S):
        with pytest.raises(TimeoutError):
            async with turns.turn("b", 0.01):
                raise AssertionError
        assert turns.waiting == 0
    async with turns.turn("b", _LONG_S):
        pass


@given(
    most=st.integers(1, 4),
    asked=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40),
)
def test_turns_are_neither_lost_nor_made(most: int, asked: list[tuple[str, bool]]) -> None:
    async def life() -> None:
        turns, order = Turns(most), list[str]()
        there: list[Asking] = []
        for who, ends in asked:
            there.append(Asking(turns, who, order))
            await settle()
            held = [each for each in there if each.has]
            assert len(held) == min(most, len(there))
            if ends:
                held[0]._go.set()
                there.remove(held[0])
                await settle()
        while there:
            held = [each for each in there if each.has]
            assert held
            await held[0].end()
            there.remove(held[0])
            await settle()
        assert turns.waiting == 0
        assert Counter(order) == Counter(who for who, _ in asked)

    asyncio.run(life())
