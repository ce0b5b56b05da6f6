"""Credentials are those of Docker and skopeo."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from dsec_layers.errors import InvalidInputError, StoreError
from dsec_layers.registry.oci.credentials import Credentials, find

HOST = "r.example.com"


def auth(user: str, password: str = "secret") -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(path: Path, config: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "REGISTRY_AUTH_FILE": str(tmp_path / "auth.json"),
        "DOCKER_CONFIG": str(tmp_path / "docker"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "HOME": str(tmp_path / "home"),
    }


def test_files_are_asked_in_order(tmp_path: Path, environ: dict[str, str]) -> None:
    assert find(HOST, environ=environ) is None
    for user, place in (
        ("home", "home/.docker/config.json"),
        ("run", "run/containers/auth.json"),
        ("docker", "docker/config.json"),
        ("named", "auth.json"),
    ):
        write(tmp_path / place, {"auths": {HOST: auth(user)}})
        assert find(HOST, environ=environ) == Credentials(user, "secret")
    assert find("other.example.com", environ=environ) is None


def test_the_longest_name_counts(tmp_path: Path, environ: dict[str, str]) -> None:
    auths = {HOST: auth("all"), f"{HOST}/team": auth("team"), "https://s.example.com": auth("url")}
    write(tmp_path / "auth.json", {"auths": auths})
    for host, repository, user in (
        (HOST, "", "all"),
        (HOST, "teams/x", "all"),
        (HOST, "team/x", "team"),
        ("s.example.com", "x", "url"),
    ):
        found = find(host, repository, environ)
        assert found is not None
        assert found.user == user


def test_docker_hub_has_a_name_of_its_own(tmp_path: Path, environ: dict[str, str]) -> None:
    write(tmp_path / "auth.json", {"auths": {"https://index.docker.io/v1/": auth("hub", "a:b")}})
    assert find("docker.io", "library/x", environ) == Credentials("hub", "a:b")


def test_tokens_and_plain_names(tmp_path: Path, environ: dict[str, str]) -> None:
    entry = {"identitytoken": "token", "email": "unknown members are no matter"}
    write(tmp_path / "auth.json", {"auths": {HOST: entry}, "HttpHeaders": {}})
    assert find(HOST, environ=environ) == Credentials(identity_token="token")
    write(tmp_path / "auth.json", {"auths": {HOST: {"username": "u", "password": "p"}}})
    assert find(HOST, environ=environ) == Credentials("u", "p")
    assert "p" not in repr(Credentials("u", "p")).removeprefix("Credentials(user=")


@pytest.mark.parametrize(
    "text", ["{", '{"auths": 3}', '{"auths": {"r.example.com": {"auth": "!"}}}']
)
def test_files_that_cannot_be_read(tmp_path: Path, environ: dict[str, str], text: str) -> None:
    (tmp_path / "auth.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"auth\.json"):
        find(HOST, environ=environ)


def helper(folder: Path, script: str) -> None:
    path = folder / "docker-credential-test"
    path.write_text(f"#!/bin/sh\nread host\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_helpers(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for config in ({"credHelpers": {HOST: "test"}}, {"credsStore": "test", "auths": {HOST: {}}}):
        write(tmp_path / "auth.json", config)
        helper(tmp_path, 'echo "{\\"Username\\":\\"u\\",\\"Secret\\":\\"of $host\\"}"')
        assert find(HOST, environ=environ) == Credentials("u", f"of {HOST}")
        helper(tmp_path, """echo '{"Username":"<token>","Secret":"t"}'""")
        assert find(HOST, environ=environ) == Credentials(identity_token="t")
        helper(tmp_path, "echo credentials not found in native keychain; exit 1")
        assert find(HOST, environ=environ) is None
        for script in ("echo broken; exit 1", "echo '{}'", "echo none"):
            helper(tmp_path, script)
            with pytest.raises(StoreError, match="docker-credential-test"):
                find(HOST, environ=environ)
