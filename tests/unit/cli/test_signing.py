"""`key`, `sign`, `signatures` and what asks for signatures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dsec_layers.api.workbench import Workbench
from dsec_layers.cli.main import main
from dsec_layers.model.reference import Reference
from tests.support.packed import pack_files

Run = Callable[..., tuple[int, str, str]]
BASE = "base/b:1"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process, in a folder of its own."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    for name in ("DSEC_REQUIRE_SIGNATURE", "DSEC_REQUIRE_ALL", "DSEC_KEY_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    pack_files(Workbench(tmp_path / "home"), Reference.parse(BASE), {"a": b"a"})

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--home", str(tmp_path / "home"), *words])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def test_from_key_to_check(run: Run) -> None:
    status, out, err = run("key", "generate", "release")
    assert (status, err) == (0, "")
    private, public, key_id = out.splitlines()
    assert (private, public) == ("release.key", "release.pub")
    status, _, err = run("signatures", BASE, "--require-signature", public)
    assert status == 13
    assert err.startswith(f"error: {BASE} (sha256:")
    assert "is not signed by release.pub: it has no signature\nhint: " in err
    status, out, err = run(
        "sign", BASE, "--key", private, "-a", "by=me", "--expires", "2999-12-31", "--bind-name"
    )
    assert (status, err) == (0, "")
    assert key_id in out
    status, out, _ = run("signatures", BASE, "--require-signature", public)
    assert status == 0
    assert out.splitlines()[1].split() == [key_id, BASE, "2999-12-31", "00:00", "UTC", "by=me"]
    (row,) = json.loads(run("signatures", BASE, "--json")[1])
    assert (row["key_id"], row["annotations"], row["problem"]) == (key_id, {"by": "me"}, "")


def test_no_signatures_print_nothing(run: Run) -> None:
    assert run("signatures", BASE) == (0, "", "")


def test_the_environment_asks_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("key", "generate", "one")
    run("key", "generate", "two")
    run("sign", BASE, "--key", "two.key")
    compose = ("compose", BASE, "-t", "env/e:1")
    monkeypatch.setenv("DSEC_REQUIRE_SIGNATURE", "one.pub:two.pub")
    assert run(*compose)[0] == 0
    monkeypatch.setenv("DSEC_REQUIRE_ALL", "1")
    status, _, err = run(*compose)
    assert status == 13
    assert "is not signed by one.pub" in err
    assert run(*compose, "--require-signature", "two.pub")[0] == 0, "the option is stronger"
    monkeypatch.setenv("DSEC_REQUIRE_SIGNATURE", "one.pub:gone.pub")
    assert run(*compose)[0] == 13
    assert run("tree", BASE)[0] == 0, "looking is not asked about"


@pytest.mark.parametrize(
    "command",
    [
        ("mount", "env/e:1", "m"),
        ("run", "--require-signature", "key.pub", "env/e:1", "true"),
        ("compose", BASE, "-t", "env/e:2"),
        ("pull", "env/e:1"),
        ("build", "."),
        ("signatures", BASE),
    ],
)
def test_a_key_that_cannot_be_used_ends_all(run: Run, tmp_path: Path, command: list[str]) -> None:
    words = list(command)
    if "--require-signature" not in words:
        words += ["--require-signature", "key.pub"]
    status, out, err = run(*words)
    assert (status, out) == (13, "")
    assert err == "error: cannot read the key key.pub: No such file or directory\n"
    assert not (tmp_path / "m").exists()


def test_a_passphrase_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSEC_KEY_PASSPHRASE", "open sesame")
    run("key", "generate", "locked")
    assert run("sign", BASE, "--key", "locked.key")[0] == 0
    monkeypatch.delenv("DSEC_KEY_PASSPHRASE")
    status, _, err = run("sign", BASE, "--key", "locked.key")
    assert status == 13
    assert "there is no passphrase\nhint: set DSEC_KEY_PASSPHRASE" in err


@pytest.mark.parametrize("date", ["tomorrow", "2030-13-01", "20300101T", "-5", "٣", "9" * 12])
def test_a_date_that_is_none(run: Run, date: str) -> None:
    run("key", "generate", "k")
    status, _, err = run("sign", BASE, "--key", "k.key", f"--expires={date}")
    assert status == 3
    assert "not a date" in err


def test_all_of_no_keys(run: Run) -> None:
    status, _, err = run("signatures", BASE, "--require-all")
    assert status == 2
    assert "--require-all needs --require-signature" in err
