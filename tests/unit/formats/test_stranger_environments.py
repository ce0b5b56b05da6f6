"""References, stacks of layers and run configurations, as docs/formats describes them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from dsec_layers.model import canonical
from dsec_layers.model.content import Source
from dsec_layers.model.environment import Environment
from dsec_layers.model.merge import apply
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import Healthcheck, RunConfig, merge
from dsec_layers.model.tree import Tree
from tests.support import stranger, trees
from tests.support.stranger_parts import Refused, compose
from tests.support.stranger_workshop import Workshop, file, folder


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


RUNS = [
    RunConfig(
        env={"PATH": "/usr/bin:/bin", "A": "1", "LD_LIBRARY_PATH": ""},
        workdir="/",
        user="root",
        entrypoint=("sh",),
        cmd=("-c", "é"),
        labels={"a": "1", "b": "1"},
    ),
    RunConfig(
        env={"PATH": "/opt/bin::/bin", "A": "2", "LD_LIBRARY_PATH": "/lib:"},
        workdir="",
        entrypoint=(),
        shell=("bash", "-c"),
        labels={"b": "2"},
    ),
    RunConfig(env={"MANPATH": ":/man:"}, cmd=(), shell=(), user=""),
]


def test_an_environment(workshop: Workshop) -> None:
    names = ["base/deb/ian:12", "workspace/w:latest", "toolkit/t__t:1"]
    layers = []
    for name, wish in zip(names, RUNS, strict=True):
        data = name.encode()
        source = workshop.source(Tree.of([file(b"f", data)]), {b"f": data})
        layers.append((Reference.parse(name).kind, name, workshop.pack(source, name, wish)))
    environment = Environment.of(layers[::-1], merge(RUNS))
    descriptor = environment.descriptor()
    workshop.store.put(descriptor, environment.encode())
    workshop.store.tag(Reference.parse("env/e"), descriptor)
    at = f"@{descriptor.digest}"
    for name in ("env/e", "env/e:latest", f"env/e{at}", f"env/e:latest{at}"):
        found, run = stranger.read_stack(workshop.stranger, name)
        assert [layer.digest for layer in found] == [layer.digest for _, _, layer in layers]
        assert [layer.runs[b"f"][0][1].decode() for layer in found] == names
        assert canonical.encode(merge(RUNS)) == stranger.canonical(run)


def test_a_layer_by_its_digest_alone(workshop: Workshop) -> None:
    descriptor = workshop.pack(Source(Tree.of([])))
    assert workshop.read(f"base/any@{descriptor.digest}").digest == descriptor.digest


def test_a_tag_that_has_moved_is_refused(workshop: Workshop) -> None:
    first = workshop.pack(Source(Tree.of([])))
    workshop.pack(Source(Tree.of([folder(b"d")])))
    with pytest.raises(Refused):
        workshop.read(f"base/x:1@{first.digest}")


@settings(max_examples=25)
@given(trees.trees(changes=False, max_inodes=6), trees.trees(max_inodes=6))
def test_layers_compose_as_described(
    below: tuple[Tree, trees.Contents], above: tuple[Tree, trees.Contents]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        workshop = Workshop(Path(place))
        base = workshop.pack(workshop.source(*below), "base/b", RUNS[0])
        workshop.pack(workshop.source(*above), "workspace/w", RUNS[1], base=base.digest)
        (lower, upper), run = stranger.read_stack(workshop.stranger, "workspace/w")
        items = compose(lower.items, upper.items)
        assert [vars(item) for item in items] == [asdict(e) for e in apply(below[0], above[0])]
        assert stranger.canonical(run) == canonical.encode(merge(RUNS[:2]))


_words = st.sampled_from(["", "a", "/b:", "c:a", "é"])
_commands = st.one_of(st.none(), st.lists(_words, max_size=2).map(tuple))
_runs = st.builds(
    RunConfig,
    env=st.dictionaries(st.sampled_from(["PATH", "A", "GOPATH"]), _words),
    workdir=st.one_of(st.none(), _words),
    user=st.one_of(st.none(), _words),
    entrypoint=_commands,
    cmd=_commands,
    shell=_commands,
    labels=st.dictionaries(_words, _words),
    ports=st.lists(_words, max_size=2).map(tuple),
    volumes=st.lists(_words, max_size=2).map(tuple),
    stop_signal=st.one_of(st.none(), _words),
    healthcheck=st.one_of(
        st.none(),
        st.builds(Healthcheck, test=st.just(("NONE",)), retries=st.integers(0, 3)),
    ),
)


@given(st.lists(_runs, max_size=4))
def test_run_configurations_merge_as_described(runs: list[RunConfig]) -> None:
    documents = [json.loads(canonical.encode(run)) for run in runs]
    assert stranger.canonical(stranger.merge_runs(documents)) == canonical.encode(merge(runs))


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(-(2**70), 2**70))))
def test_canonical_json_as_described(value: dict[str, object]) -> None:
    assert stranger.canonical(value) == canonical.encode(value)
