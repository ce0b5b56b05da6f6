"""Ed25519 keys in PEM files: made, read, used.

A key pair is `NAME.key` (PKCS #8, mode 0600, encrypted when there is a passphrase) and `NAME.pub`
(SubjectPublicKeyInfo). The id of a key is the sha256 of its public half in DER.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dsec_layers.errors import ConflictError, SignatureError
from dsec_layers.model.digest import Digest

_MAX_FILE_BYTES: Final = 64 << 10
_PRIVATE_MARK: Final = b"PRIVATE KEY-----"


class KeyPair(msgspec.Struct, frozen=True):
    """Where a new key pair is, and its id."""

    key_id: str
    private: str
    public: str


@dataclass(frozen=True)
class PublicKey:
    """A key that signatures are checked with. `path` is where it was read from."""

    path: Path
    key: Ed25519PublicKey

    @property
    def key_id(self) -> str:
        """See the top of this file."""
        return key_id(self.key)

    def made(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` is this key's signature of `message`."""
        try:
            self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


def generate(path: Path, passphrase: bytes | None = None) -> KeyPair:
    """Make `path`.key and `path`.pub.

    Raises ConflictError when one of them is there, or OSError.
    """
    private, public = path.with_name(f"{path.name}.key"), path.with_name(f"{path.name}.pub")
    key = Ed25519PrivateKey.generate()
    encryption = (
        serialization.BestAvailableEncryption(passphrase)
        if passphrase
        else serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption)
    shown = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    for each in (private, public):
        if each.exists():
            raise ConflictError(f"{each} is there already", hint="take another name for the key")
    _write_new(private, secret, 0o600)
    try:
        _write_new(public, shown, 0o644)
    except BaseException:
        private.unlink()
        raise
    return KeyPair(key_id(key.public_key()), str(private), str(public))


def key_id(key: Ed25519PublicKey) -> str:
    """The id of a key: `sha256:...`."""
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return str(Digest.sha256(key.public_bytes(encoding, form)))


def load_private(path: Path, passphrase: Callable[[], bytes | None]) -> Ed25519PrivateKey:
    """The private key in a file; `passphrase` is asked for one only when the file is encrypted.

    Raises SignatureError when it cannot be read or is no such key.
    """
    data = _read(path)
    try:
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except TypeError:  # it is encrypted
            key = serialization.load_pem_private_key(data, password=_given(path, passphrase()))
    except (ValueError, UnsupportedAlgorithm) as error:
        what = "the passphrase is wrong, or " if b"ENCRYPTED" in data else ""
        raise SignatureError(f"{path}: {what}it is no private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"{path} is no Ed25519 key", hint=_HINT)
    return key


def load_public(path: Path) -> PublicKey:
    """The public key in a file. Raises SignatureError when it cannot be read or is no such key."""
    data = _read(path)
    if _PRIVATE_MARK in data:
        raise SignatureError(f"{path} is a private key", hint="give the .pub file beside it")
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError(f"{path} is no public key in PEM", hint=_HINT) from error
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureError(f"{path} is no Ed25519 key", hint=_HINT)
    return PublicKey(path, key)


_HINT: Final = "`dsec-layers key generate` makes keys"


def _given(path: Path, passphrase: bytes | None) -> bytes:
    if not passphrase:
        hint = "set DSEC_KEY_PASSPHRASE, or sign at a terminal"
        raise SignatureError(f"{path} is encrypted and there is no passphrase", hint=hint)
    return passphrase


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SignatureError(f"cannot read the key {path}: {error.strerror}") from error
    if len(data) > _MAX_FILE_BYTES:
        raise SignatureError(f"{path} is too large for a key", hint=_HINT)
    return data


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file aside, durably, and give it its name if that is free."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, mode)
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.link(aside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
    except FileExistsError as error:
        raise ConflictError(f"{path} is there already", hint="take another name") from error
