"""`build --verify-reproducible`: the first thing that differs between two builds."""

import json
import re
from pathlib import Path

import pytest

from dsec_layers.errors import BuildError
from tests.support.cli import BASE, Cli

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci]


def context(cli: Cli, steps: str, head: str = "LAYER base x") -> Path:
    folder = cli.folder / "context"
    folder.mkdir(exist_ok=True)
    (folder / "Layerfile").write_text(f"{head}\nFROM {BASE}\n{steps}")
    return folder


def verify(cli: Cli, folder: Path, *options: str) -> tuple[int, str]:
    ran = cli.run("--progress", "quiet", "build", folder, "--verify-reproducible", *options)
    return ran.status, ran.stderr


def test_what_is_the_same_is_tagged(cli: Cli) -> None:
    folder = context(cli, "RUN mkdir /d && echo 1 > /d/f && ln /d/f /d/g\nRUN rm /d/g\n")
    assert verify(cli, folder, "--epoch", "1000000000") == (0, "")
    assert cli.tags() == [BASE, "base/x:latest"]
    assert not list((cli.home / "builder/apart").iterdir())


@pytest.mark.parametrize("head", ["LAYER base x", "LAYER workspace x"])
def test_contents_that_differ(cli: Cli, head: str) -> None:
    text = "RUN echo same > /a; (echo abc; cat /proc/sys/kernel/random/uuid) > /id; cp /id /z\n"
    status, said = verify(cli, context(cli, text, head), "--epoch", "1000000000")
    assert status == BuildError.exit_code
    lines = said.splitlines()
    assert "cannot be built twice the same" in lines[0]
    found = re.fullmatch(
        r"    /id: contents differ from byte (\d+): b'(.).*' and b'(.).*'", lines[1]
    )
    assert found, lines[1]
    assert int(found[1]) >= len("abc\n")
    assert found[2] != found[3]
    assert lines[2].startswith("    2 of ")
    assert cli.tags() == [BASE]
    assert cli.leftovers() == []


def test_times_differ_without_an_epoch(cli: Cli) -> None:
    status, said = verify(cli, context(cli, "RUN echo same > /a; touch -d @5 /\n"))
    assert status == BuildError.exit_code
    assert "/a: mtime " in said
    assert " and " in said
    assert "SOURCE_DATE_EPOCH" in said.splitlines()[-1]
    assert cli.tags() == [BASE]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("touch /$(cat {})", "build only"),
        ("touch -d @$(cut -c 1-7 {} | tr a-f 1-6) /f", "/f: mtime "),
        ("ln -s $(cat {}) /l", "/l: target "),
    ],
)
def test_other_differences(cli: Cli, step: str, said: str) -> None:
    text = f"RUN {step.format('/proc/sys/kernel/random/uuid')}\n"
    status, output = verify(cli, context(cli, text), "--epoch", "1000000000")
    assert status == BuildError.exit_code
    assert said in output


def test_a_cached_build_is_held_against_a_fresh_one(cli: Cli) -> None:
    """Also what another run has left in the cache is looked at."""
    folder = context(
        cli, "RUN --mount=type=cache,target=/c echo >> /c/n; cat /c/n > /n; touch -d @5 /n /\n"
    )
    cli("build", folder, "-t", "base/first:1", "--epoch", "0")
    status, _ = verify(cli, folder, "--epoch", "0")
    assert status == 0
    folder = context(
        cli, "RUN --mount=type=cache,target=/c echo >> /c/n; cat /c/n > /n; touch -d @6 /n /\n"
    )
    status, said = verify(cli, folder, "--epoch", "0")
    assert status == BuildError.exit_code
    assert "/n: size 2 and 1" in said


def test_events_of_both_builds_are_told(cli: Cli) -> None:
    folder = context(cli, "RUN echo 1 > /d\n")
    ran = cli.run("--progress", "json", "build", folder, "--verify-reproducible", "--epoch", "0")
    events = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [event["event"] for event in events] == ["step", "done", "note", "step", "done", "built"]
