"""The book of the pool, against everything that may happen in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dsec_runtime.tiers.fncall.ledger import End, Hand, Ledger, Start, Step
from dsec_runtime.tiers.fncall.settings import FncallSettings

BOUNDS = FncallSettings(
    most=2, total=3, least=1, spare=1, idle_s=10, keep_s=50, tasks=9, waiting=99
)
KEYS = ("a", "b", "c")


class Pool(RuleBasedStateMachine):
    """A world that does what the ledger says, with containers that exist by their own account."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger: Ledger[str] = Ledger(BOUNDS)
        self.now_s = 1000.0
        self.made = 0
        self.starting: list[str] = []
        self.ready: dict[str, str] = {}  # by container: of which kind, nobody has it
        self.lent: dict[str, str] = {}
        self.ending: dict[str, str] = {}
        self.waiting: dict[int, str] = {}
        self.dirty: set[str] = set()
        self.rests_until_s: dict[str, float] = {}

    def act(self) -> None:
        for step in self.ledger.plan(self.now_s):
            self.do(step)

    def do(self, step: Step[str]) -> None:
        match step:
            case Hand(ticket, member):
                kind = self.ready.pop(member)  # KeyError: somebody has it, or it is ending
                assert member not in self.dirty
                assert self.waiting.pop(ticket) == kind
                assert not [it for it, key in self.waiting.items() if key == kind and it < ticket]
                self.lent[member] = kind
            case Start(key):
                self.starting.append(key)
            case End(member):
                self.ending[member] = self.ready.pop(member)

    @rule(key=st.sampled_from(KEYS))
    def ask(self, key: str) -> None:
        self.waiting[self.ledger.ask(key, self.now_s)] = key
        self.act()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[ticket]
        self.ledger.cancel(ticket)
        self.act()

    @precondition(lambda self: self.starting)
    @rule()
    def start(self) -> None:
        key = self.starting.pop(0)
        self.made += 1
        self.ready[f"m{self.made}"] = key
        self.ledger.started(key, f"m{self.made}", self.now_s)
        self.act()

    @precondition(lambda self: self.starting)
    @rule()
    def fail(self) -> None:
        key = self.starting.pop(0)
        told = self.ledger.failed(key, self.now_s)
        others = [*self.ready.values(), *self.lent.values(), *self.starting]
        if key in others:
            assert told is None
            self.rests_until_s[key] = self.now_s + 1
            self.act()
            return
        waiting = [it for it, of in self.waiting.items() if of == key]
        assert told == (min(waiting) if waiting else None)
        if told is not None:
            del self.waiting[told]
        self.act()

    @precondition(lambda self: self.lent)
    @rule(data=st.data(), clean=st.booleans())
    def give_back(self, data: st.DataObject, clean: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.lent)))
        kind = self.lent.pop(member)
        (self.ready if clean else self.ending)[member] = kind
        if not clean:
            self.dirty.add(member)
        self.ledger.back(member, self.now_s, clean=clean)
        self.act()

    @precondition(lambda self: self.ending)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.ending)))
        del self.ending[member]
        self.ledger.ended(member)
        self.act()

    @rule(seconds=st.sampled_from([1, 11, 51]))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds
        self.act()

    @invariant()
    def never_more_than_it_may(self) -> None:
        there = [*self.ready.values(), *self.lent.values(), *self.ending.values(), *self.starting]
        assert len(there) <= BOUNDS.total
        assert all(there.count(key) <= BOUNDS.most for key in KEYS)

    @invariant()
    def every_container_is_accounted_for(self) -> None:
        assert self.ledger.counts() == {
            "starting": len(self.starting),
            "idle": len(self.ready),
            "busy": len(self.lent),
            "ending": len(self.ending),
        }
        assert self.ledger.waiting == len(self.waiting)

    @invariant()
    def nobody_waits_beside_what_is_ready(self) -> None:
        assert not set(self.waiting.values()) & set(self.ready.values())

    @invariant()
    def whoever_waits_longest_is_being_served(self) -> None:
        """Unless all containers work: then the first that is given back is for them."""
        if self.waiting:
            first = self.waiting[min(self.waiting)]
            working = first in self.starting or self.lent or self.ending
            rests = self.now_s < self.rests_until_s.get(first, 0)
            assert working or rests or len(self.starting) == BOUNDS.total

    def teardown(self) -> None:
        """All comes to an end that was begun, and then all can go."""
        for _ in range(200):
            self.now_s += 1
            if self.starting:
                self.start()
            for member in list(self.ending):
                del self.ending[member]
                self.ledger.ended(member)
            for member, kind in list(self.lent.items()):
                del self.lent[member]
                self.ready[member] = kind
                self.ledger.back(member, self.now_s, clean=True)
            self.act()
        assert not self.waiting
        self.ledger.close()
        self.act()
        assert not self.ready
        for member in list(self.ending):
            self.ledger.ended(member)
        assert self.ledger.live == 0


TestPool = Pool.TestCase


def run(ledger: Ledger[str], now_s: float) -> list[Step[str]]:
    return ledger.plan(now_s)


def test_one_more_is_kept_ready_while_there_is_use() -> None:
    ledger: Ledger[str] = Ledger(BOUNDS)
    ticket = ledger.ask("a", 0)
    assert run(ledger, 0) == [Start("a")]
    ledger.started("a", "m1", 0)
    assert run(ledger, 0) == [Hand(ticket, "m1"), Start("a")]
    ledger.started("a", "m2", 1)
    ledger.back("m1", 1, clean=True)
    assert run(ledger, 1) == []
    assert run(ledger, 12) == [End("m2")]
    assert run(ledger, 40) == []
    assert run(ledger, 60) == [End("m1")]


def test_an_idle_one_of_another_kind_makes_room() -> None:
    ledger: Ledger[str] = Ledger(BOUNDS)
    for number in (1, 2):
        ledger.ask("a", 0)
        run(ledger, 0)
        ledger.started("a", f"a{number}", 0)
        run(ledger, 0)
    ledger.ask("b", 0)
    run(ledger, 0)
    ledger.started("b", "b1", 0)
    run(ledger, 0)
    ledger.back("a1", 1, clean=True)
    ledger.ask("b", 2)
    assert run(ledger, 2) == [End("a1")]
    assert run(ledger, 2) == []
    ledger.ended("a1")
    assert run(ledger, 2) == [Start("b")]


def test_where_none_can_be_made_none_is_made_again_and_again() -> None:
    ledger: Ledger[str] = Ledger(BOUNDS)
    ticket = ledger.ask("a", 0)
    assert run(ledger, 0) == [Start("a")]
    assert ledger.failed("a", 0) == ticket
    assert run(ledger, 0) == []
