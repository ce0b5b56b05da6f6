"""Tokens: in doubt nobody comes in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsec_runtime.edge.auth import Tokens, add, digest
from dsec_runtime.edge.principal import Principal
from dsec_runtime.errors import InvalidRequestError, UnauthorizedError


def test_a_token_is_kept_as_a_hash_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "edge" / "tokens"
    token = add(path, "trainer")
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert Tokens(path).principal(f"Bearer {token}") == Principal("trainer")


def test_operators_are_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    plain, operator = add(path, "a"), add(path, "b", operator=True)
    tokens = Tokens(path)
    assert not tokens.principal(f"bearer {plain}").is_operator
    assert tokens.principal(f"Bearer {operator}").is_operator


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer x", "Basic {}", "{}", "Bearer {}x"]
)
def test_anything_else_is_refused(tmp_path: Path, header: str | None) -> None:
    path = tmp_path / "tokens"
    token = add(path, "a")
    with pytest.raises(UnauthorizedError):
        Tokens(path).principal(header and header.format(token))


def test_the_hash_is_no_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    token = add(path, "a")
    with pytest.raises(UnauthorizedError):
        Tokens(path).principal(f"Bearer {digest(token)}")


@pytest.mark.parametrize(
    "text", ["", "# none\n", "a b c d\n", "a xyz\n", f"a {'0' * 64} root\n", f"-a {'0' * 64}\n"]
)
def test_a_file_without_sense_is_no_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InvalidRequestError):
        Tokens(path)


def test_no_file_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        Tokens(tmp_path / "tokens")


def test_changes_are_seen_and_damage_closes_the_door(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    first = add(path, "a")
    tokens = Tokens(path)
    second = add(path, "b")
    assert tokens.principal(f"Bearer {second}").name == "b"
    good = path.read_text()
    path.write_text(good + "nonsense\n")
    with pytest.raises(UnauthorizedError):
        tokens.principal(f"Bearer {first}")
    path.write_text(good)
    os.utime(path, ns=(1, 1))
    assert tokens.principal(f"Bearer {first}").name == "a"
    path.unlink()
    with pytest.raises(UnauthorizedError):
        tokens.principal(f"Bearer {first}")


@pytest.mark.parametrize("name", ["", "a b", "#a", "a\nb", "-"])
def test_names_cannot_break_the_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        add(tmp_path / "tokens", name)
    assert not (tmp_path / "tokens").exists()
