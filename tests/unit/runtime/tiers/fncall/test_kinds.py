"""How code becomes a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.tiers.fncall.kinds import Kinds

RUBY = '[ruby]\ninline = ["ruby", "-e", "{code}"]\nscript = ["ruby", "{file}"]\nname = "main.rb"\n'


def test_short_code_is_an_argument_and_long_code_a_file(tmp_path: Path) -> None:
    python = Kinds(tmp_path / "none").find("python")
    assert python.argv("print(1)", ("a",)) == ("python3", "-c", "print(1)", "a")
    long = "#" * (128 << 10)
    assert not python.is_inline(long)
    assert python.argv(long, ("a",)) == ("python3", "./main.py", "a")
    assert not python.is_inline("é" * (60 << 10))
    assert not python.is_inline("a\0b")


def test_arguments_of_a_shell_begin_with_the_first(tmp_path: Path) -> None:
    shell = Kinds(tmp_path / "none").find("shell")
    assert shell.argv("echo {file} $1", ("x",)) == ("/bin/sh", "-c", "echo {file} $1", "sh", "x")


def test_the_operator_adds_kinds_while_the_edge_runs(tmp_path: Path) -> None:
    table = tmp_path / "kinds.toml"
    kinds = Kinds(table)
    with pytest.raises(InvalidRequestError, match="python, shell"):
        kinds.find("ruby")
    table.write_text(RUBY)
    assert kinds.find("ruby").argv("p 1", ()) == ("ruby", "-e", "p 1")
    table.unlink()
    with pytest.raises(InvalidRequestError):
        kinds.find("ruby")


@pytest.mark.parametrize(
    "text", ["[ruby", "[ruby]\nname = 'x'", RUBY + "more = 1", RUBY.replace("main.rb", "../main")]
)
def test_a_table_that_is_not_as_it_should_be_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "kinds.toml").write_text(text)
    with pytest.raises(InvalidRequestError, match=r"kinds\.toml"):
        Kinds(tmp_path / "kinds.toml").find("shell")
