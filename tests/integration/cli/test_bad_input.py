"""What is wrong with the input is said in one line, with its status; nothing is left of it."""

import gzip
import os
from pathlib import Path

import pytest

from dsec_layers.errors import (
    BuildError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from dsec_layers.model.reference import Reference
from tests.support.cli import BASE, Cli, tar_of

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci]

TAR = tar_of({"file": os.urandom(100_000)})


def write_layerfile(cli: Cli, text: str) -> Path:
    folder = cli.folder / "context"
    folder.mkdir()
    (folder / "Layerfile").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        ("LAYER base x\nFROM base/small:1\nNONSENSE a\n", 3, "NONSENSE"),
        ("LAYER base x\nFROM base/small:1\nONBUILD RUN x\n", 3, "ONBUILD"),
        ("LAYER base x\nFROM base/small:1\n\nRUN <<EOF\necho\n", 4, "EOF"),
        ("LAYER base x\nFROM base/small:1\nCOPY missing /x\n", 3, "missing"),
        ("LAYER base x\nFROM base/small:1\nCOPY one\n", 3, "COPY"),
        ("LAYER base x\nRUN true\n", 2, "FROM"),
        ("LAYER nothing x\nFROM base/small:1\n", 1, "nothing"),
        ("LAYER base x\nFROM not a reference\n", 2, "FROM"),
    ],
)
def test_a_bad_layerfile(cli: Cli, text: str, line: int, named: str) -> None:
    folder = write_layerfile(cli, text)
    ran = cli.run("build", folder)
    assert ran.status in (InvalidInputError.exit_code, NotFoundError.exit_code), ran
    assert f"{folder}/Layerfile:{line}: " in ran.error
    assert named in ran.error
    assert ran.stdout == b""
    assert cli.tags() == [BASE]
    assert cli.leftovers() == []


def test_a_build_without_a_context_or_with_a_digest_as_its_name(cli: Cli) -> None:
    folder = write_layerfile(cli, "LAYER base x\nFROM base/small:1\nRUN exit 1\n")
    file = folder / "Layerfile"
    for context in (folder / "missing", file):
        ran = cli.fails(NotFoundError, "build", "-f", file, context)
        assert str(context) in ran.error
    name = f"base/x:1@sha256:{'0' * 64}"
    ran = cli.fails(InvalidInputError, "build", folder, "-t", name)
    assert name in ran.error
    assert ran.hint == "write a tag, as in base/x:v1"


def test_a_build_on_a_layer_that_is_missing(cli: Cli) -> None:
    folder = write_layerfile(cli, "LAYER base x\nFROM base/other:1\nRUN true\n")
    ran = cli.fails(NotFoundError, "build", folder)
    assert "base/other:1" in ran.error
    assert f"{folder}/Layerfile:2" in ran.error
    assert ran.hint
    assert cli.leftovers() == []


def test_a_step_that_fails(cli: Cli) -> None:
    folder = write_layerfile(
        cli, "LAYER base x\nFROM base/small:1\nRUN echo one; echo two >&2; exit 3\n"
    )
    ran = cli.run("build", folder)
    assert ran.status == BuildError.exit_code
    assert f"{folder}/Layerfile:3: step 1/1 failed with status 3" in ran.error
    assert ran.stderr.splitlines()[-2:] == ["    one", "    two"]
    assert cli.tags() == [BASE]
    assert cli.leftovers() == []


def test_a_build_of_nothing(cli: Cli) -> None:
    assert "/no/such" in cli.fails(NotFoundError, "build", "/no/such").error
    (cli.folder / "empty").mkdir()
    assert "Layerfile" in cli.fails(NotFoundError, "build", cli.folder / "empty").error


@pytest.mark.parametrize(
    "text", ["", "base", "nokind/x", "base/UPPER", "base/x:", "base/x@sha256:1"]
)
@pytest.mark.parametrize("command", ["mount", "run", "inspect", "tree", "verify", "push", "untag"])
def test_a_bad_reference(bare: Cli, command: str, text: str) -> None:
    ran = bare.fails(InvalidInputError, command, text, "/somewhere")
    assert repr(text) in ran.error
    assert "kind/name" in ran.hint
    assert not bare.home.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("mount", "base/other", "MNT"),
        ("run", "base/other", "--", "true"),
        ("inspect", "base/other"),
        ("tree", "base/other"),
        ("cat", "base/other", "/x"),
        ("verify", "base/other"),
        ("push", "base/other", "dir://MNT"),
        ("pull", "base/other", "STORE"),
        ("untag", BASE, "base/other"),
        ("compose", BASE, "toolkit/other", "-t", "env/x"),
        ("cat", BASE, "/no/such"),
        ("tree", BASE, "/no/such"),
        ("cat", BASE, "/etc/passwd/x"),
        ("umount", "MNT"),
        ("import", "/no/such", "base/x"),
    ],
)
def test_what_does_not_exist(cli: Cli, words: tuple[str, ...]) -> None:
    places = {"MNT": str(cli.folder / "mnt"), "STORE": cli.bench.local.url}
    given = [words[0], *words[1:]]
    for name, place in places.items():
        given = [word.replace(name, place) for word in given]
    cli.fails(NotFoundError, *given)
    assert cli.tags() == [BASE]
    assert cli.leftovers() == []
    assert not (cli.folder / "mnt").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("import", "-", "workspace/x"), "workspace/x"),
        (("compose", BASE, "-t", "base/x"), "base/x"),
        (("compose", "env/a", "-t", "env/x"), "env"),
        (("build", ".", "-t", "env/x"), "env/x"),
        (("build", ".", "-t", "base/x", "--kind", "toolkit"), "toolkit"),
        (("build", ".", "-t", "base/x", "--name", "y"), "the name y"),
        (("cat", BASE, "/etc"), "/etc"),
        (("untag", f"base/small@sha256:{'0' * 64}"), "tag"),
    ],
)
def test_the_wrong_kind(cli: Cli, words: tuple[str, ...], named: str) -> None:
    ran = cli.run(*words)
    assert ran.status in (InvalidInputError.exit_code, NotFoundError.exit_code)
    assert named in ran.error
    assert cli.tags() == [BASE]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive at all",
        b"x" * 100_000,
        TAR[:50_000],
        TAR[:300],
        gzip.compress(TAR)[:50_000],
        gzip.compress(TAR)[:-4] + b"xxxx",
        b"\x28\xb5\x2f\xfd" + os.urandom(1000),
        TAR[:148] + b"9999999\0" + TAR[156:],
    ],
    ids=["empty", "text", "x", "cut", "cut-header", "cut-gzip", "bad-gzip", "zstd", "checksum"],
)
def test_a_broken_archive_on_standard_input(bare: Cli, data: bytes) -> None:
    ran = bare.run("import", "-", "base/x:1", stdin=data)
    assert ran.status in (CorruptError.exit_code, InvalidInputError.exit_code), ran
    assert "standard input" in ran.error
    assert bare.tags() == []
    assert bare.leftovers() == []


def test_an_archive_whose_paths_leave_it(bare: Cli) -> None:
    ran = bare.run("import", "-", "base/x:1", stdin=tar_of({"../../etc/evil\n": b"x"}))
    if ran.status:
        assert ran.status == InvalidInputError.exit_code
        assert "evil\\n" in ran.error
    else:
        assert "/etc/evil" in bare("tree", "base/x:1")


@pytest.mark.parametrize(
    "url", ["dir:///no/such/store", "threefs:///no/such/mount", f"dir://{os.devnull}"]
)
def test_a_store_that_does_not_exist(cli: Cli, url: str) -> None:
    assert "store" in cli.fails(StoreError, "pull", BASE, url).error
    assert "store" in cli.fails(StoreError, "--store", url, "run", "base/other", "true").error
    assert cli.leftovers() == []


@pytest.mark.parametrize("url", ["", "/path", "nonsense://x", "dir://host/path", "dir://"])
def test_a_bad_url(cli: Cli, url: str) -> None:
    assert cli.fails(InvalidInputError, "push", BASE, url).hint
    assert cli.fails(InvalidInputError, "pull", BASE, url).hint


def test_a_pull_from_nowhere(cli: Cli) -> None:
    assert cli.fails(InvalidInputError, "pull", BASE).hint


def test_environments_that_cannot_be(cli: Cli) -> None:
    cli.add("base/second:1", {"x": "second"})
    for name in ("a", "b"):
        cli.add(f"workspace/{name}:1", {name: name})
    cli.add("toolkit/t:1", {"t": "t"})
    cli.add("toolkit/same:1", {"t": "t"})
    bad = {
        (BASE, "base/second:1"): "exactly one base, got 2",
        ("toolkit/t:1",): "exactly one base, got 0",
        (BASE, "workspace/a:1", "workspace/b:1"): "at most one workspace",
        (BASE, "toolkit/t:1", "toolkit/t:1"): "twice",
    }
    for parts, said in bad.items():
        assert said in cli.fails(InvalidInputError, "compose", *parts, "-t", "env/x").error
    base = cli.bench.local.resolve(Reference.parse(BASE))
    mixed = f"toolkit/x@{base.digest}"
    assert "is a base" in cli.fails(InvalidInputError, "compose", mixed, "-t", "env/x").error
    assert not [tag for tag in cli.tags() if tag.startswith("env/")]


def test_a_wrong_command_line(bare: Cli) -> None:
    for words in (("nonsense",), ("run",), ("mount", BASE), ("--progress", "x", "ls"), ("umount",)):
        ran = bare.run(*words)
        assert ran.status == 2
        assert ran.stdout == b""
        assert ran.error
        assert "--help" in ran.hint
    told = bare.run("--json", "nonsense")
    assert told.stderr.startswith('{"error": "UsageError", "exit_code": 2, ')
