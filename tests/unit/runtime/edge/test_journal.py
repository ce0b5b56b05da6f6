"""The journal: what it keeps, and that the second of two changes is told so."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.edge.journal import Journal, Row
from dsec_runtime.edge.transitions import ALLOWED
from dsec_runtime.spec import NetworkRule, State
from dsec_runtime.tiers.tier import Running
from tests.support.edge_doubles import SPEC

RUNNING = Running(
    id="a", socket="/s", pid=7, pid_start=9, digests=("x",), env={"A": "b"}, own={"cgroup": "c"}
)


def row(name: str = "a", **changes: object) -> Row:
    made = Row(id=name, principal="me", spec=SPEC, created_s=1.0, changed_s=2.0, used_s=3.0)
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "j")
    yield made
    made.close()


def only(journal: Journal) -> Row:
    (found,) = journal.rows()
    return found


def test_all_comes_back_after_an_end_without_warning(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(
        SPEC, labels={"job": "17"}, network=(NetworkRule(allow=False, service="npm"),), owner="o"
    )
    full = row(
        spec=spec,
        key="k",
        body_hash=b"\x00h",
        running=RUNNING,
        ends_s=9.5,
        version=4,
        reason="r",
        state=State.PAUSED,
    )
    first = Journal(tmp_path / "j")
    first.insert(full)
    second = Journal(tmp_path / "j")  # the first was never closed, as after a kill
    assert only(second) == full
    assert second.by_key("me", "k") == full
    assert second.by_key("you", "k") is None
    second.close()
    first.close()


def test_a_key_belongs_to_one_sandbox_of_a_principal(journal: Journal) -> None:
    journal.insert(row("a", key="k"))
    journal.insert(row("b", key="k", principal="you"))
    journal.insert(row("c"))
    journal.insert(row("d"))
    with pytest.raises(sqlite3.IntegrityError):
        journal.insert(row("e", key="k"))


@pytest.mark.parametrize("start", State)
@pytest.mark.parametrize("target", State)
def test_only_allowed_moves_are_made(journal: Journal, start: State, target: State) -> None:
    journal.insert(row(state=start, reason="before"))
    done = journal.move("a", target, 8.0, running=RUNNING)
    assert done == (target in ALLOWED[start])
    found = only(journal)
    assert found.state is (target if done else start)
    assert (found.changed_s, found.running) == ((8.0, RUNNING) if done else (2.0, None))
    assert found.reason == "before"


def test_a_renewal_that_comes_first_saves_it(journal: Journal) -> None:
    journal.insert(row(state=State.RUNNING, ends_s=10.0))
    assert journal.due(11.0) == ["a"]
    assert journal.renew("a", 50.0, 0)
    assert not journal.expire("a", 0, 11.0, "late")
    assert not journal.expire("a", 1, 11.0, "not yet")
    assert journal.due(11.0) == []


def test_a_renewal_that_comes_second_is_told_so(journal: Journal) -> None:
    journal.insert(row(state=State.RUNNING, ends_s=10.0))
    assert journal.expire("a", 0, 11.0, "it was idle")
    assert not journal.renew("a", 50.0, 0)
    found = only(journal)
    assert (found.state, found.reason, found.ends_s) == (State.STOPPING, "it was idle", 10.0)
    assert not journal.expire("a", 0, 12.0, "twice")


@given(
    st.lists(st.tuples(st.sampled_from(["renew", "expire"]), st.integers(0, 5), st.floats(1, 99)))
)
def test_a_deadline_has_one_history(steps: list[tuple[str, int, float]]) -> None:
    """Against a model: whoever knows the present version wins, and an end is for ever."""
    journal = Journal(Path(":memory:"))
    journal.insert(row(state=State.RUNNING, ends_s=50.0))
    version, ends_s, over = 0, 50.0, False
    for what, seen, at in steps:
        if what == "renew":
            done = journal.renew("a", at, seen)
            assert done == (not over and seen == version)
            version, ends_s = (version + 1, at) if done else (version, ends_s)
        else:
            done = journal.expire("a", seen, at, "over")
            assert done == (not over and seen == version and ends_s <= at)
            over = over or done
    assert (only(journal).state is State.STOPPING) == over
    journal.close()


def test_leases_run_out_unless_they_are_held(journal: Journal) -> None:
    journal.hold("me", "o", 10.0, 100.0)
    journal.hold("me", "p", 10.0, 100.0)
    journal.hold("you", "o", 50.0, 100.0)
    journal.hold("me", "o", 10.0, 105.0)
    assert [(lease.principal, lease.owner) for lease in journal.overdue(110.0)] == [("me", "p")]
    assert journal.overdue(110.0) == []
    journal.extend_leases(1000.0)
    assert journal.overdue(1009.0) == []
    assert len(journal.overdue(1010.0)) == 1
    assert journal.release("you", "o")
    assert not journal.release("you", "o")


def test_what_has_ended_is_forgotten_after_its_time(journal: Journal) -> None:
    for name, state in (("a", State.STOPPED), ("b", State.LOST), ("c", State.PAUSED)):
        journal.insert(row(name, state=state))
    journal.insert(row("d", state=State.STOPPED, changed_s=9.0))
    assert sorted(journal.prune(5.0)) == ["a", "b"]
    assert [each.id for each in journal.rows()] == ["c", "d"]


def test_use_is_noted(journal: Journal) -> None:
    journal.insert(row("a"))
    journal.insert(row("b"))
    journal.set_used([(7.0, "a"), (8.0, "nobody")])
    assert {each.id: each.used_s for each in journal.rows()} == {"a": 7.0, "b": 3.0}
