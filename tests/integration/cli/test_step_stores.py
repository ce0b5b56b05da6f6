"""`build --cache-to` and `--cache-from`: the steps of one machine on another."""

import json
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Kind
from dsec_layers.registry.directory import DirectoryStore
from tests.support.cli import BASE, Cli

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci]

TEXT = """
FROM {base} AS made
WORKDIR /w
RUN cat /proc/sys/kernel/random/uuid > id; echo old > gone; ln id second; mkdir -p d/e; ln -s e d/l
RUN rm gone; rm -r /root; mkdir /root; chmod 4750 id; touch -d @123.456789 d; cat id > third
FROM {base}
COPY --from=made /w /w
RUN cat /w/id > /last; mknod /dev-null c 1 3
COPY file /file
"""


@pytest.fixture
def context(cli: Cli) -> Path:
    folder = cli.folder / "context"
    folder.mkdir()
    (folder / "Layerfile").write_text("LAYER base x\n" + TEXT.format(base=BASE))
    (folder / "file").write_text("of the context")
    return folder


def build(cli: Cli, context: Path, *options: str) -> tuple[list[dict[str, object]], str]:
    """The events of a build that must succeed, and the digest of its layer."""
    ran = cli.run("--progress", "json", "--json", "build", context, "-t", "base/x:1", *options)
    assert ran.status == 0, ran
    events = [json.loads(line) for line in ran.stderr.splitlines()]
    return events, json.loads(ran.stdout)["digest"]


def forget(cli: Cli) -> None:
    """As on another machine: nothing of the builder is left."""
    shutil.rmtree(cli.home / "builder")


def notes(events: list[dict[str, object]]) -> list[str]:
    return [str(event["message"]) for event in events if event["event"] == "note"]


def kinds(events: list[dict[str, object]], kind: str) -> list[object]:
    return sorted(event["number"] for event in events if event["event"] == kind)  # type: ignore[type-var]


def test_another_machine_runs_nothing(cli: Cli, context: Path) -> None:
    url = f"dir://{cli.folder}/steps"
    events, digest = build(cli, context, "--cache-to", url)
    assert kinds(events, "done") == [1, 2, 3, 4, 5, 6]
    assert notes(events) == [f"6 steps were put into {url}"]
    forget(cli)
    events, again = build(cli, context, "--cache-from", url)
    assert kinds(events, "done") == []
    assert {event["store"] for event in events if event["event"] == "cached"} == {url}
    assert again == digest, "the very same layer, for all that it was not reproducible"
    assert next(event for event in events if event["event"] == "built")["cached"] == 6
    # And it is here now.
    events, again = build(cli, context)
    assert [event["store"] for event in events if event["event"] == "cached"] == [""] * 6
    assert again == digest


def test_only_what_is_hit_is_fetched(cli: Cli, context: Path) -> None:
    url = f"dir://{cli.folder}/steps"
    build(cli, context, "--cache-to", url)
    forget(cli)
    (context / "file").write_text("another")
    events, _ = build(cli, context, "--cache-from", url)
    assert kinds(events, "done") == [6]
    assert kinds(events, "cached") == [1, 2, 3, 4, 5]


def test_steps_are_no_layers(cli: Cli, context: Path) -> None:
    """They are tagged, so that a collector keeps them, and show up where one asks for them."""
    url = f"dir://{cli.home}/store"  # even in the store of the layers
    build(cli, context, "--cache-to", url)
    listed = cli.json("ls")
    assert {row["reference"] for row in listed} == {BASE, "base/x:1"}
    steps = cli.json("ls", "cache")
    assert len(steps) == 6
    ran = cli.fails(InvalidInputError, "mount", steps[0]["reference"], cli.folder / "m")
    assert "result of a build step" in ran.error
    assert cli.json("inspect", steps[0]["reference"])["kind"] == "cache"


def test_runs_of_a_command_are_not_mixed(cli: Cli, context: Path) -> None:
    """Of two machines that ran the same command the store keeps one run and what stands on it."""
    url = f"dir://{cli.folder}/steps"
    _, first = build(cli, context, "--cache-to", url)
    forget(cli)
    events, second = build(cli, context, "--cache-to", url)
    assert second != first
    # Those after its own run in the first stage are left out; the others stand on a base.
    assert notes(events) == [f"3 steps were put into {url}"]
    forget(cli)
    _, third = build(cli, context, "--cache-from", url)
    assert third == first
    forget(cli)
    _, fresh = build(cli, context, "--no-cache", "--cache-to", url)
    forget(cli)
    events, last = build(cli, context, "--cache-from", url)
    assert last == fresh != first
    assert kinds(events, "done") == []


def test_what_is_damaged_is_told_and_mended(cli: Cli, context: Path) -> None:
    url = f"dir://{cli.folder}/steps"
    build(cli, context, "--cache-to", url)
    for path in (cli.folder / "steps/packs").glob("*/*"):
        path.chmod(0o600)
        path.write_bytes(bytes(path.stat().st_size))
    forget(cli)
    events, _ = build(cli, context, "--cache-from", url, "--cache-to", url)
    assert all("cannot be used" in note for note in notes(events)[:-1])
    assert notes(events)[:-1]
    assert kinds(events, "done")


@pytest.mark.parametrize("url", ["dir:///nowhere/at/all", "threefs:///nowhere/at/all"])
def test_a_store_that_is_away_is_a_note(cli: Cli, context: Path, url: str) -> None:
    events, _ = build(cli, context, "--cache-from", url)
    assert len([note for note in notes(events) if f"without the step cache {url}" in note]) == 1
    assert kinds(events, "done") == [1, 2, 3, 4, 5, 6]


def test_a_store_that_cannot_be_written_is_a_note(cli: Cli, context: Path) -> None:
    (cli.folder / "file").touch()
    events, _ = build(cli, context, "--cache-to", f"dir://{cli.folder}/file/x")
    assert "going on without the step cache" in notes(events)[-1]


@pytest.mark.parametrize("option", ["--cache-from", "--cache-to"])
def test_what_is_no_store_is_refused(cli: Cli, context: Path, option: str) -> None:
    ran = cli.fails(InvalidInputError, "build", context, option, "nonsense://x")
    assert "unknown kind of store" in ran.error


def test_the_entry_of_another_step_is_not_taken(cli: Cli, context: Path) -> None:
    url = f"dir://{cli.folder}/steps"
    build(cli, context, "--cache-to", url)
    store = DirectoryStore.open(cli.folder / "steps")
    tags = list(store.tags(Kind.CACHE))
    for (reference, _), (_, other) in zip(tags, tags[1:] + tags[:1], strict=True):
        store.tag(reference, other)
    forget(cli)
    events, _ = build(cli, context, "--cache-from", url)
    assert "is not the result of that step" in notes(events)[0]
    assert kinds(events, "cached") == []


def test_room_is_made_in_a_store(cli: Cli, context: Path) -> None:
    url = f"dir://{cli.folder}/steps"
    build(cli, context, "--cache-to", url)
    rows = cli.json("builder", "du", "--store", url)
    assert len(rows) == 6
    assert {"COPY file /file", "WORKDIR /w"} <= {row["title"] for row in rows}
    assert all(row["size_bytes"] > 0 for row in rows)
    assert cli.json("builder", "prune", "--store", url, "--unused-for", "24") == []
    store = DirectoryStore.open(cli.folder / "steps")
    reference, target = next(iter(store.tags(Kind.CACHE)))
    old = {"org.opencontainers.image.created": "2020-01-01T00:00:00Z"}
    store.tag(reference, structs.replace(target, annotations=old))
    would = cli.json("builder", "prune", "--store", url, "--unused-for", "24", "--dry-run")
    assert [row["name"] for row in would] == [reference.tag]
    # What is used is set again, and so it stays.
    forget(cli)
    build(cli, context, "--cache-from", url)
    assert cli.json("builder", "prune", "--store", url, "--unused-for", "24") == []
    assert len(cli.json("builder", "prune", "--store", url, "--keep", "1")) >= 5
    assert len(list(store.tags(Kind.CACHE))) <= 1
