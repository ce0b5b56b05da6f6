from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.api.secrets import read_secrets
from dsec_layers.errors import InvalidInputError, NotFoundError


def test_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s"
    file.write_bytes(b"\0file")
    monkeypatch.setenv("ONE", "1")
    given = [f"id=a,src={file}", "id=b,env=ONE", "id=ONE", "type=env,id=c,source=ONE"]
    assert read_secrets(given) == {"a": b"\0file", "b": b"1", "ONE": b"1", "c": b"1"}


@pytest.mark.parametrize(
    "text",
    ["", "id", "id=", "src=/a", "id=a,src=b,env=c", "id=a,id=b", "id=a,key=b", "type=x,id=a"],
)
def test_malformed(text: str) -> None:
    with pytest.raises(InvalidInputError, match="malformed"):
        read_secrets([text])


def test_what_was_pasted_by_mistake_is_not_repeated() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_secrets(["id=a,hidden"])
    assert "hidden" not in str(caught.value)


def test_what_is_not_there_or_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NONE", raising=False)
    for text in ("id=a,env=NONE", f"id=a,src={tmp_path}/none", f"id=a,src={tmp_path}"):
        with pytest.raises(NotFoundError, match="'a'"):
            read_secrets([text])
    big = tmp_path / "big"
    big.write_bytes(bytes((500 << 10) + 1))
    with pytest.raises(InvalidInputError, match="500 KiB"):
        read_secrets([f"id=a,src={big}"])
    with pytest.raises(InvalidInputError, match="twice"):
        read_secrets([f"id=a,src={__file__}"] * 2)
