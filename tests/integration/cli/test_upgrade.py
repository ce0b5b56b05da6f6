"""`upgrade` as a user meets it."""

import pytest

from dsec_layers.errors import ConflictError, DsecError, InvalidInputError, NotFoundError
from tests.support.cli import BASE, Cli


@pytest.fixture
def many(cli: Cli) -> Cli:
    """Three environments with a toolkit, and one without."""
    for version in ("v1", "v2"):
        cli.add(f"toolkit/t:{version}", {"opt/t": version})
    for number in range(3):
        cli.compose(f"env/swe/e{number}:v1", BASE, "toolkit/t:v1")
    cli.compose("env/plain:v1", BASE)
    return cli


def test_a_pattern(many: Cli) -> None:
    before = many("ls", "--json")
    dry = many("upgrade", "toolkit/t:v2", "--in", "env/*", "--dry-run")
    assert dry.splitlines()[-1] == "3 upgraded (dry run: nothing was written)"
    assert many("ls", "--json") == before
    rows = many.json("upgrade", "toolkit/t:v2", "--in", "env/*")
    assert [(row["environment"], row["status"]) for row in rows] == [
        (f"env/swe/e{number}:v1", "upgraded") for number in range(3)
    ]
    assert many("cat", "env/swe/e1:v1", "/opt/t") == "v2"
    again = many("upgrade", "toolkit/t:v2", "--in", "env/*")
    assert again == "3 unchanged\n"


def test_what_fails_is_told_at_the_end(many: Cli) -> None:
    words = ("upgrade", "toolkit/t:v2", "--in", "env/plain:v1", "--in", "env/swe/e0:v1")
    ran = many.run(*words)
    assert ran.status == DsecError.exit_code
    assert ran.error.startswith("1 of 2 environments were not upgraded; env/plain:v1: ")
    assert "env/swe/e0:v1  upgraded" in ran.text
    many("upgrade", "toolkit/t:v2", "--in", "env/swe/e1:v1", "--to-tag", "v2")
    many.compose("env/swe/e2:v2", BASE)
    ran = many.run("upgrade", "toolkit/t:v2", "--in", "env/swe/e2:v1", "--to-tag", "v2")
    assert ran.status == ConflictError.exit_code


def test_progress(many: Cli) -> None:
    ran = many.run("--progress", "json", "upgrade", "toolkit/t:v2", "--in", "env/swe/*")
    assert '"done": 3' in ran.stderr.splitlines()[-1]
    assert '"total": 3' in ran.stderr.splitlines()[-1]


def test_what_is_refused(many: Cli) -> None:
    many.fails(NotFoundError, "upgrade", "toolkit/t:v3", "--in", "env/*")
    many.fails(NotFoundError, "upgrade", "toolkit/t:v2", "--in", "env/none*")
    many.fails(InvalidInputError, "upgrade", "env/plain:v1", "--in", "env/*")
