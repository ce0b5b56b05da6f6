"""How often further stores are asked about what is mounted from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.shaper import Counters, Line, ShapedStore
from dsec_layers.api import composing, moving
from dsec_layers.api.lately import FOR_S, Lately
from dsec_layers.api.lending import secured
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.model.reference import Reference
from dsec_layers.registry import leases
from dsec_layers.registry.directory import DirectoryStore
from tests.support.packed import pack_files

BASE, TOOL, ENV = map(Reference.parse, ("base/b:1", "toolkit/t:1", "env/e:1"))
LAYERS = 2


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    """A store that has an environment."""
    near = Workbench(tmp_path / "near")
    pack_files(near, BASE, {"a": b"base"})
    pack_files(near, TOOL, {"t": b"tool"}, base=near.resolve(BASE))
    composing.compose(near, [BASE, TOOL], ENV)
    moving.push(near, ENV, f"dir://{tmp_path}/store")
    return DirectoryStore.open(tmp_path / "store")


@pytest.fixture
def counters() -> Iterator[Counters]:
    made = Counters()
    yield made
    made.close()


@pytest.fixture
def registry(store: DirectoryStore, counters: Counters) -> ShapedStore:
    """The same as one that others collect: no lease can be had there."""
    return ShapedStore(store.url, store, Line(0, 1e12, counters))


def over(home: Path, store: DirectoryStore | ShapedStore) -> Workbench:
    made = Workbench(home, [store.url])
    vars(made)["remotes"] = (store,)
    return made


def secure(bench: Workbench) -> None:
    with secured(bench, ENV) as stack:
        assert len(stack.layers) == LAYERS


def test_what_has_just_come_is_not_asked_for(
    registry: ShapedStore, counters: Counters, tmp_path: Path
) -> None:
    bench = over(tmp_path / "far", registry)
    secure(bench)
    # The tag, the index with manifests, what is attached; of each layer config, metadata, table.
    assert counters.requests == 3 + 3 * LAYERS
    secure(bench)
    assert counters.requests == 3 + 3 * LAYERS


def test_what_came_earlier_is_asked_for_once(
    registry: ShapedStore, counters: Counters, tmp_path: Path
) -> None:
    secure(over(tmp_path / "far", registry))
    before = counters.requests
    bench = over(tmp_path / "far", registry)
    secure(bench)
    secure(bench)
    assert counters.requests == before + LAYERS


def test_what_was_found_out_is_kept_in_mind_for_a_moment() -> None:
    now = 0.0
    lately = Lately(lambda: now)
    lately.note(["a"])
    now = FOR_S - 1
    lately.note(["b"])
    assert "a" in lately
    now = FOR_S
    assert ("a" in lately, "b" in lately, "c" in lately) == (False, True, False)


def test_a_lease_is_written_once_for_mounts_that_begin_together(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(store, "write_note", lambda name, *_, **__: written.append(name))
    bench = over(tmp_path / "far", store)
    secure(bench)
    secure(bench)
    assert sum("mounted-" in name for name in written) == 1


def test_a_store_that_was_out_of_reach_is_tried_again(
    store: DirectoryStore, tmp_path: Path
) -> None:
    bench = over(tmp_path / "far", store)
    secure(bench)
    there, away = store.root, tmp_path / "away"
    bench.lately = Lately()
    there.rename(away)
    secure(bench)
    away.rename(there)
    for note in list(store.notes(leases.FOLDER)):
        store.remove_note(note.name)
    secure(bench)
    assert [note.name for note in store.notes(leases.FOLDER)]


def test_where_a_lease_can_be_had_it_goes_before_the_question(
    store: DirectoryStore, tmp_path: Path
) -> None:
    bench = over(tmp_path / "far", store)
    for layer in bench.stack(ENV).layers:  # all has just come, and is then collected
        store.delete(layer.descriptor)
    with pytest.raises(NotFoundError, match="neither here"), secured(bench, ENV):
        pass
