"""`diff` and `why`: what they print and how they end."""

import pytest

from dsec_layers.errors import NotFoundError
from tests.support.cli import BASE, Cli


@pytest.fixture
def layers(cli: Cli) -> Cli:
    cli.add("base/one:1", {"etc/conf": "one", "gone": "x", "same": "same"})
    cli.add("base/two:1", {"etc/conf": "two", "n\new": "x", "same": "same"})
    cli.add("toolkit/t:1", {"etc/conf": "tool"})
    cli.compose("env/e:1", "base/one:1", "toolkit/t:1")
    return cli


def test_diff(layers: Cli) -> None:
    said = layers("diff", "base/one:1", "base/two:1")
    assert said.splitlines() == ["M\t/etc/conf\tcontent (read)", "D\t/gone", "A\t/n\\new"]
    lines = layers("diff", "base/one:1", "base/two:1", "--metadata-only").splitlines()
    assert lines[0] == "M\t/etc/conf\tcontent (not read, may be equal)"
    said = layers("diff", "base/one:1", "env/e:1")
    assert said == "M\t/etc/conf\tsize 3 -> 4, content\n"
    document = layers.json("diff", "base/one:1", "env/e:1")
    assert document["changes"][0]["details"][1]["how"] == "size"
    assert document["summary"]["changed"] == 1
    assert "1 added, 1 removed, 1 changed" in layers(
        "diff", "base/one:1", "base/two:1", "--summary"
    )
    assert layers.json("diff", "base/one:1", "base/two:1", "--summary")["added"] == 1


def test_the_exit_status_tells_of_a_difference_when_asked(layers: Cli) -> None:
    assert layers("diff", "base/one:1", "base/one:1", "--exit-code") == ""
    ran = layers.run("diff", "base/one:1", "base/two:1", "--exit-code")
    assert (ran.status, ran.stderr) == (1, "")
    layers.fails(NotFoundError, "diff", "base/one:1", "base/other:1", "--exit-code")


def test_why(layers: Cli) -> None:
    head, top, bottom = layers("why", "env/e:1", "etc/conf").splitlines()
    assert head == "/etc/conf"
    assert top.startswith("  toolkit/t:1 (")
    assert "gives the file 0644" in top
    assert top.endswith("4 B, which is seen")
    assert bottom.startswith("  base/one:1 (")
    assert "hidden by toolkit/t:1 (" in bottom
    assert layers("why", BASE, "/no/such").splitlines()[0] == "/no/such is not in the composition"
    document = layers.json("why", "env/e:1", "/etc/conf")
    assert [row["wins"] for row in document["layers"]] == [True, False]


def test_history(layers: Cli) -> None:
    lines = layers("history", "env/e:1").splitlines()
    assert [line.partition(" sha256:")[0] for line in lines if not line.startswith(" ")] == [
        "base/one:1",
        "toolkit/t:1",
    ]
    assert any(line.startswith(f"  built on: {BASE} sha256:") for line in lines)
    document = layers.json("history", "env/e:1")
    assert [made["layer"]["kind"] for made in document] == ["base", "toolkit"]


def test_sizes_of_directories(layers: Cli) -> None:
    lines = [line.split() for line in layers("tree", "base/one:1", "--size").splitlines()]
    assert lines[0] == ["SIZE", "STORED", "FILES", "PATH"]
    assert [(line[0], line[-1]) for line in lines[1:]] == [("8", "/"), ("3", "/etc")]
    (row,) = layers.json("tree", "base/one:1", "etc", "--size")
    assert (row["path"], row["files"], row["size_bytes"]) == ("/etc", 1, 3)
    assert len(layers.json("tree", "base/one:1", "--size", "-L", "0")) == 1
