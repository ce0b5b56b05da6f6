"""Collectors beside pushers, mounters and who moves tags, at every order of their steps.

All orders with one change of actors out of turn are tried, and drawn ones with any number of them,
with and without a death. Nothing is young here: only leases and announcements protect.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.errors import BusyError, ConflictError, NotFoundError
from dsec_layers.model.manifest import Descriptor, LayerManifest
from dsec_layers.model.reference import Reference
from dsec_layers.registry import leases, tagging
from dsec_layers.registry.collect import Rules, collect
from dsec_layers.registry.condemned import Timing
from dsec_layers.registry.layers import load_manifest
from tests.support.profiles import NIGHTLY
from tests.support.stores import put_layer
from tests.support.turns import Stage, Turn
from tests.support.whole_store import WholeStore

OLD, NEW, LEFT = (Reference.parse(f"base/{name}:1") for name in ("old", "new", "left"))
MOVED = Reference.parse("base/moved:1")


@dataclass
class World:
    """A store with a tagged layer OLD, an untagged one LEFT, and the layer NEW to be pushed.

    They share packs, and one pack of NEW is there already, left by a push that died.
    """

    choose: Callable[[int], int]
    store: WholeStore = field(default_factory=WholeStore)
    source: WholeStore = field(default_factory=WholeStore)
    mounted: dict[str, list[Descriptor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stage = Stage(self.choose, self.check)
        self.store.clock = lambda: self.stage.now
        self.old = put_layer(self.store, OLD, [b"shared", b"of old"])
        self.left = put_layer(self.store, LEFT, [b"shared", b"of left"])
        self.new = put_layer(self.source, NEW, [b"shared", b"of left", b"of new"])
        self.store.untag(LEFT)
        data = self.source.held.blobs
        for blob in load_manifest(self.source, self.new).packs:
            self.store.put(blob, data[blob.digest])
        self.stage.now += 1

    def view(self, turn: Turn) -> WholeStore:
        """The store as one actor uses it."""
        return replace(self.store, step=turn.step)

    def timing(self, turn: Turn) -> Timing:
        """Time as an actor feels it."""
        return Timing(
            lease_s=40_000,  # nobody renews one here
            announcement_s=1000,
            poll_s=10,
            clock=lambda: self.stage.now,
            sleep=functools.partial(self.stage.sleep, turn),
        )

    def check(self) -> None:
        """Nothing that a tag or a mount leads to is missing, at any moment."""
        there = self.store.held.blobs
        for reference, target in self.store.tagged_.items():
            assert target.digest in there, f"{reference} dangles"
            for blob in LayerManifest.decode(there[target.digest]).blobs:
                assert blob.digest in there, f"{blob.digest} of {reference} is lost"
        for name, blobs in self.mounted.items():
            for blob in blobs:
                assert blob.digest in there, f"{blob.digest} is lost under the mount of {name}"

    def push(self, turn: Turn) -> None:
        """As `transfer.copy` does it."""
        store, manifest = self.view(turn), load_manifest(self.source, self.new)
        blobs = [*manifest.blobs, self.new]
        with leases.hold(store, blobs, purpose="t", timing=self.timing(turn)) as held:
            for blob in [blob for blob in blobs if not store.has(blob)]:
                store.put(blob, self.source.held.blobs[blob.digest])
            held.check()
            tagging.set_tag(store, NEW, self.new)

    def tag_left(self, turn: Turn) -> None:
        """A tag for a layer that has none, if it is still there."""
        store = self.view(turn)
        try:
            manifest = load_manifest(store, self.left)
            blobs = [*manifest.blobs, self.left]
            with leases.hold(store, blobs, purpose="t", timing=self.timing(turn)) as held:
                if store.has(self.left):  # its blobs would go after it
                    held.check()
                    tagging.set_tag(store, LEFT, self.left)
        except NotFoundError:
            pass

    def rename(self, turn: Turn) -> None:
        """A tag moves to another name."""
        store = self.view(turn)
        blobs = [*load_manifest(store, self.old).blobs, self.old]
        with leases.hold(store, blobs, purpose="t", timing=self.timing(turn)):
            tagging.set_tag(store, MOVED, self.old)
        tagging.remove_tag(store, OLD)

    def mount(self, turn: Turn) -> None:
        """As `api.mounting` does it: a record in the journal stands for the lease later on."""
        store = self.view(turn)
        try:
            target = store.resolve(OLD)
            blobs = [*load_manifest(store, target).blobs, target]
            with leases.hold(store, blobs, purpose="t", timing=self.timing(turn)):
                if not all(store.has(blob) for blob in blobs):
                    return
                turn.step()
                self.mounted["m"] = blobs
            for blob in blobs:
                store.read(blob)
        except NotFoundError:
            assert "m" not in self.mounted
        self.mounted.pop("m", None)

    def untag(self, turn: Turn) -> None:
        """What was tagged is not any more."""
        tagging.remove_tag(self.view(turn), OLD)

    def collect(self, turn: Turn) -> None:
        """A collector without patience."""

        def in_use() -> Iterator[str]:
            turn.step()
            return iter([self.old.digest] if self.mounted else [])

        rules = Rules(grace_s=-1e9, workers=1, timing=self.timing(turn))
        collect(self.view(turn), rules, in_use=in_use)

    def play(self, names: tuple[str, ...], kill: tuple[str, int] = ("", 0)) -> dict[str, int]:
        """Run these actors; then a collector alone must leave what is needed, and nothing else."""
        works = {name: getattr(self, name.rstrip("2")) for name in names}
        self.stage.run(works, kill=kill)
        for turn in self.stage.turns:
            assert isinstance(turn.error, BusyError | ConflictError | None), turn.error
        steps = {turn.name: turn.steps for turn in self.stage.turns}
        if "push" in names and kill[0] != "push":
            assert NEW in self.store.tagged_
        self.mounted.clear()
        self.stage.now += 100_000
        self.stage.run({"collect": self.collect})
        assert self.stage.turns[0].error is None
        needed = set[str]()
        for target in self.store.tagged_.values():
            needed |= {target.digest, *(b.digest for b in load_manifest(self.store, target).blobs)}
        assert set(self.store.held.blobs) == needed
        assert not self.store.noted
        return steps


CASTS = [
    ("collect", "push"),
    ("collect", "push", "push2"),
    ("collect", "collect2", "push"),
    ("collect", "untag", "mount"),
    ("collect", "mount", "rename"),
    ("collect", "tag_left", "push"),
]


def once_out_of_turn(when: int, whom: int) -> Callable[[int], int]:
    """Choices that change the actor once, at the n-th chance, besides where one must."""
    chances = iter(range(1 << 30))
    return lambda count: min(whom, count - 1) if next(chances) == when else 0


@pytest.mark.parametrize("cast", CASTS, ids="-".join)
def test_every_single_change_of_actors(cast: tuple[str, ...]) -> None:
    for start in range(len(cast)):
        names = (*cast[start:], *cast[:start])
        steps = sum(World(lambda _: 0).play(names).values())
        for when in range(0, steps, 1 if NIGHTLY else 3):
            for whom in range(1, len(cast)):
                World(once_out_of_turn(when, whom)).play(names)


@given(
    cast=st.sampled_from(CASTS),
    choices=st.lists(st.integers(0, 2), max_size=300),
    kill=st.none() | st.tuples(st.integers(0, 2), st.integers(0, 150)),
)
def test_any_order_and_any_death(
    cast: tuple[str, ...], choices: list[int], kill: tuple[int, int] | None
) -> None:
    drawn = iter(choices)
    victim = (cast[kill[0] % len(cast)], kill[1]) if kill else ("", 0)
    World(lambda count: min(next(drawn, 0), count - 1)).play(cast, victim)


def test_the_stage_would_notice() -> None:
    """Without its lease a push does lose data, so these tests can fail."""

    class Careless(World):
        def push(self, turn: Turn) -> None:
            store, manifest = self.view(turn), load_manifest(self.source, self.new)
            missing = [blob for blob in (*manifest.blobs, self.new) if not store.has(blob)]
            for blob in missing:
                store.put(blob, self.source.held.blobs[blob.digest])
            tagging.set_tag(store, NEW, self.new)

    def all_orders() -> None:
        for when in range(100):
            for names in (("collect", "push"), ("push", "collect")):
                Careless(once_out_of_turn(when, 1)).play(names)

    with pytest.raises(AssertionError, match=r"is lost|dangles"):
        all_orders()
