"""Nothing unsigned is mounted, run or built on where a signature is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import InvalidInputError, SignatureError
from dsec_layers.model.reference import Reference
from dsec_layers.registry.directory import DirectoryStore
from tests.support.cli import BASE, Cli

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse]

ENV = "env/e:1"


@pytest.fixture
def key(cli: Cli) -> Path:
    cli("key", "generate", cli.folder / "release")
    cli.add("toolkit/t:1", {"opt/tool": "1"})
    cli.compose(ENV, BASE, "toolkit/t:1")
    return cli.folder / "release"


def test_a_mount_of_what_is_signed(cli: Cli, key: Path) -> None:
    target, asked = cli.folder / "mnt", ("--require-signature", f"{key}.pub")
    refused = cli.fails(SignatureError, "mount", ENV, target, *asked)
    assert "it has no signature" in refused.error
    assert not target.exists()
    cli("sign", ENV, "--key", f"{key}.key")
    cli("mount", ENV, target, *asked)
    assert (target / "opt/tool").read_text() == "1"
    cli("umount", target)


def test_a_lazy_mount_from_a_store_in_which_a_tag_was_changed(cli: Cli, key: Path) -> None:
    store, there = f"dir://{cli.folder}/store", cli.folder / "there"
    target, asked = cli.folder / "mnt", ("--require-signature", f"{key}.pub")
    cli("sign", ENV, "--key", f"{key}.key")
    cli("push", ENV, store)
    cli.add("toolkit/t:1", {"opt/tool": "2"})
    cli.compose("env/evil:1", BASE, "toolkit/t:1")
    cli("push", "env/evil:1", store)
    ran = cli.run("--store", store, "mount", ENV, target, *asked, home=there)
    assert ran.status == 0, ran
    assert (target / "opt/tool").read_text() == "1"
    assert cli.run("umount", target, home=there).status == 0
    cli.stop_daemon(there)

    opened = DirectoryStore.open(cli.folder / "store")
    evil = opened.resolve(Reference.parse("env/evil:1"))
    opened.tag(Reference.parse(ENV), evil)
    elsewhere = cli.folder / "elsewhere"
    words = ("--store", store, "mount", ENV, target, *asked)
    cli.fails(SignatureError, *words, home=elsewhere)
    assert not target.exists()
    assert not list((elsewhere / "store").glob("refs/*/*"))


def test_a_commit_of_what_is_mounted(cli: Cli, key: Path) -> None:
    """The mount may be older than the question: what it lies on is named, and compared."""
    asked = ("--require-signature", f"{key}.pub")
    target = cli.folder / "mnt"
    cli("mount", ENV, target)
    (target / "new").write_text("new")
    words = ("commit", target, "-t", "workspace/w:1", *asked)
    assert "by name" in cli.fails(SignatureError, *words).error
    assert "no signature" in cli.fails(SignatureError, *words, "--base", ENV).error
    cli("sign", BASE, "--key", f"{key}.key")
    cli.fails(InvalidInputError, *words, "--base", BASE)  # signed, but not what is below
    cli("sign", ENV, "--key", f"{key}.key")
    cli(*words, "--base", ENV)
    cli("umount", target)


@pytest.mark.oci
def test_a_run_and_a_build(cli: Cli, key: Path) -> None:
    asked = ("--require-signature", f"{key}.pub")
    context = cli.folder / "context"
    context.mkdir()
    (context / "Layerfile").write_text(f"LAYER toolkit made\nFROM {BASE}\nCOPY Layerfile /here\n")
    cli.fails(SignatureError, "run", *asked, ENV, "--", "true")
    cli.fails(SignatureError, "build", context, *asked)
    upper = cli.folder / "upper"
    upper.mkdir()
    cli.fails(SignatureError, "commit", upper, "--base", BASE, "-t", "workspace/w:1", *asked)
    cli("sign", BASE, "--key", f"{key}.key")
    cli("sign", ENV, "--key", f"{key}.key")
    assert cli("run", *asked, ENV, "--", "cat", "/opt/tool") == "1"
    cli("build", context, *asked)
    steps = ("--cache-from", f"dir://{cli.folder}/steps")
    refused = cli.fails(SignatureError, "build", context, *asked, *steps)
    assert "results of steps" in refused.error
