"""`push` and `pull` between stores: only what is missing moves, and what arrives is whole."""

import json
from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.model.manifest import PACK_TYPE
from dsec_layers.model.reference import Reference
from dsec_layers.registry.urls import open_store
from tests.support.cli import BASE, Cli
from tests.support.damage import blob_path, flip_bit


@pytest.fixture
def url(cli: Cli) -> str:
    return f"dir://{cli.folder}/remote"


def test_only_what_is_missing_moves(cli: Cli, url: str) -> None:
    cli.add("toolkit/t:1", {"t": "t" * 50_000})
    cli("compose", BASE, "toolkit/t:1", "-t", "env/e")
    first = cli.json("push", BASE, url)
    assert first["sent_bytes"] > 1_000_000
    assert first["skipped_bytes"] == 0
    again = cli.json("push", BASE, url)
    assert (again["sent_bytes"], again["skipped_bytes"]) == (0, first["sent_bytes"])
    second = cli.json("push", "env/e", url)
    assert second["skipped_bytes"] == first["sent_bytes"]
    assert 0 < second["sent_bytes"] < 20_000
    assert cli("push", "env/e", url).endswith("already there\n")


def test_there_and_back(cli: Cli, url: str) -> None:
    cli.add("toolkit/t:1", {"t": "text"})
    cli("compose", BASE, "toolkit/t:1", "-t", "env/e:v1")
    cli("push", "env/e:v1", url)
    other = Cli(cli.folder / "other", cli.environ)
    other.folder.mkdir()
    lazy = other.json("pull", "env/e:v1", url, "--metadata-only")
    assert other.json("ls")[0]["complete"] is False
    whole = other.json("pull", "env/e:v1", url)
    assert whole["digest"] == lazy["digest"] == cli.json("inspect", "env/e:v1")["digest"]
    assert whole["skipped_bytes"] == lazy["sent_bytes"]
    assert other.json("ls")[0]["complete"] is True
    assert other("cat", "env/e:v1", "/t") == "text"
    assert other("verify", "--stored-only", "env/e:v1").count(" ok") > 5
    assert cli("--store", url, "pull", "env/e:v1").endswith("already here\n")


def test_a_store_is_made_by_a_push_only(cli: Cli, url: str) -> None:
    cli.fails(NotFoundError, "push", "base/other", url)
    assert not (cli.folder / "remote").exists()
    cli("push", BASE, url)
    assert cli("push", BASE, f"threefs://{cli.folder}/remote").endswith("already there\n")


def test_a_pushed_layer_whose_data_is_not_here(cli: Cli, url: str) -> None:
    cli("push", BASE, url)
    lazy = Cli(cli.folder / "lazy", cli.environ)
    lazy.folder.mkdir()
    lazy("pull", BASE, url, "--metadata-only")
    lazy.fails(NotFoundError, "push", BASE, f"dir://{cli.folder}/third")
    third = open_store(f"dir://{cli.folder}/third")
    assert list(third.tags()) == []


def test_a_damaged_pack_is_not_moved(cli: Cli, url: str) -> None:
    store = cli.bench.local
    (pack,) = [blob for blob in store.blobs() if blob.media_type == PACK_TYPE]
    flip_bit(blob_path(store, pack), 5000)
    error = cli.fails(CorruptError, "push", BASE, url)
    assert pack.digest in error.error
    assert list(open_store(url).tags()) == []
    assert list(Path(cli.folder, "remote").rglob("tmp-*")) == []


def test_progress_forms(cli: Cli, url: str) -> None:
    quiet = cli.run("--progress", "quiet", "push", BASE, url)
    assert quiet.stderr == ""
    assert cli.run("--progress", "plain", "push", BASE, url).status == 0
    failed = cli.run("--progress", "json", "push", "base/other", url)
    (event,) = map(json.loads, failed.stderr.splitlines())
    assert event["error"] == "NotFoundError"
    assert event["exit_code"] == failed.status == 4


def test_the_same_tag_again(cli: Cli, url: str) -> None:
    """A tag moves with a push; who has the old one keeps it until the next pull."""
    cli.add("toolkit/t:1", {"t": "old"})
    cli("push", "toolkit/t:1", url)
    cli.add("toolkit/t:1", {"t": "new"})
    cli("push", "toolkit/t:1", url)
    digest = cli.bench.local.resolve(Reference.parse("toolkit/t:1")).digest
    assert open_store(url).resolve(Reference.parse("toolkit/t:1")).digest == digest
