"""Keys in files: secret where they must be, refused by name where they are none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dsec_layers.api import keys
from dsec_layers.errors import ConflictError, DsecError, SignatureError


def unasked() -> bytes:
    pytest.fail("no passphrase is needed")


def test_a_pair_signs_and_checks(tmp_path: Path) -> None:
    pair = keys.generate(tmp_path / "release.v1")
    private, public = Path(pair.private), Path(pair.public)
    assert (private.name, public.name) == ("release.v1.key", "release.v1.pub")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert private.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    key, shown = keys.load_private(private, unasked), keys.load_public(public)
    assert shown.key_id == pair.key_id == keys.key_id(key.public_key())
    assert shown.made(key.sign(b"text"), b"text")
    assert not shown.made(key.sign(b"text"), b"test")
    assert not shown.made(b"", b"text")
    assert sorted(each.name for each in tmp_path.iterdir()) == [private.name, public.name]


def test_a_passphrase(tmp_path: Path) -> None:
    private = Path(keys.generate(tmp_path / "k", b"open sesame").private)
    assert b"ENCRYPTED" in private.read_bytes()
    assert keys.load_private(private, lambda: b"open sesame")
    with pytest.raises(SignatureError, match="the passphrase is wrong"):
        keys.load_private(private, lambda: b"open barley")
    with pytest.raises(SignatureError, match="there is no passphrase"):
        keys.load_private(private, lambda: None)


@pytest.mark.parametrize("taken", ["k.key", "k.pub"])
def test_no_key_is_overwritten(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(ConflictError, match="is there already"):
        keys.generate(tmp_path / "k")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(taken, "mine")]


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    pair = keys.generate(tmp_path / "k")
    curve = ec.generate_private_key(ec.SECP256R1())
    pem, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    files = {
        "empty": b"",
        "binary": b"\xff" * 100,
        "large": b"-" * (65 << 10),
        "cut": Path(pair.public).read_bytes()[:60],
        "curve": curve.public_key().public_bytes(pem, form),
        "secret": Path(pair.private).read_bytes(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(SignatureError, match=name):
            keys.load_public(tmp_path / name)
    for path in (tmp_path / "none", tmp_path, tmp_path / "binary", Path(pair.public)):
        with pytest.raises(SignatureError) as refused:
            keys.load_private(path, unasked)
        assert str(path) in refused.value.message
    assert issubclass(SignatureError, DsecError)
