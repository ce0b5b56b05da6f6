"""Signatures: what counts, and everything that does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dsec_layers.api import composing, keys, moving
from dsec_layers.api.signatures import SignOptions, list_signatures, sign
from dsec_layers.api.trust import Trust
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError, NotFoundError, SignatureError
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.model.signature import (
    ENVELOPE_TYPE,
    PAYLOAD_TYPE,
    SIGNATURE_ARTIFACT,
    Envelope,
    Payload,
    to_sign,
)
from dsec_layers.registry.attachments import AttachmentReader, publish
from dsec_layers.registry.directory import DirectoryStore
from tests.support.packed import pack_files

BASE, TOOL = Reference.parse("base/b:1"), Reference.parse("toolkit/t:1")
ENV = Reference.parse("env/e:1")
NOW = 1_000_000.0


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"a": b"a"})
    pack_files(made, TOOL, {"b": b"b"}, base=made.resolve(BASE))
    composing.compose(made, [BASE, TOOL], ENV)
    return made


class Key:
    """A key pair in files."""

    def __init__(self, path: Path) -> None:
        self.pair = keys.generate(path)
        self.public = Path(self.pair.public)
        self.private = keys.load_private(Path(self.pair.private), lambda: None)


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return Key(tmp_path / "release")


@pytest.fixture
def other(tmp_path: Path) -> Key:
    return Key(tmp_path / "other")


def check(
    bench: Workbench, reference: Reference, *wanted: Key, require_all: bool = False
) -> tuple[str, ...]:
    paths = [each.public for each in wanted]
    trust = Trust(Trust.of(paths).keys, require_all, now=lambda: NOW)
    return trust.check(bench.reader, reference, bench.resolve(reference))


def attach(bench: Workbench, subject: Descriptor, envelope: bytes) -> None:
    data = Descriptor.of(envelope, ENVELOPE_TYPE)
    publish(bench.local, Attachment(SIGNATURE_ARTIFACT, subject, (data,)), envelope)


def enveloped(key: Ed25519PrivateKey, payload: bytes, signed: bytes | None = None) -> bytes:
    signature = key.sign(to_sign(payload) if signed is None else signed)
    return Envelope(payload, keys.key_id(key.public_key()), signature).encode()


def test_what_a_key_has_signed_is_accepted(bench: Workbench, key: Key, other: Key) -> None:
    with pytest.raises(SignatureError, match="has no signature"):
        check(bench, ENV, key)
    signed = sign(bench, ENV, key.private)
    assert signed.digest == bench.resolve(ENV).digest
    assert check(bench, ENV, key) == (key.pair.key_id,) == (signed.key_id,)
    assert check(bench, ENV, other, key) == (key.pair.key_id,)
    with pytest.raises(SignatureError, match="by another key"):
        check(bench, ENV, other)
    with pytest.raises(SignatureError, match=r"other\.pub"):
        check(bench, ENV, other, key, require_all=True)
    sign(bench, ENV, other.private)
    assert len(check(bench, ENV, other, key, require_all=True)) == 2


def test_signing_again_adds_nothing(bench: Workbench, key: Key) -> None:
    before = len(list(bench.local.blobs()))
    first = sign(bench, ENV, key.private)
    after = len(list(bench.local.blobs()))
    assert after == before + 3, "the envelope, {} and the manifest"
    assert sign(bench, ENV, key.private) == first
    assert len(list(bench.local.blobs())) == after
    assert [row.signature for row in list_signatures(bench, ENV)] == [first.signature]


def test_a_signature_of_a_layer_is_none_of_the_environment(bench: Workbench, key: Key) -> None:
    sign(bench, BASE, key.private)
    sign(bench, TOOL, key.private)
    with pytest.raises(SignatureError):
        check(bench, ENV, key)


def test_the_envelope_is_that_of_dsse(bench: Workbench, key: Key) -> None:
    payload = Payload.of(bench.resolve(ENV), annotations={"by": "me"}).encode()
    assert to_sign(b"x{}") == b"DSSEv1 %d %s 3 x{}" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode())
    document = msgspec.json.decode(enveloped(key.private, payload))
    assert set(document) == {"payload", "payloadType", "signatures"}
    assert [set(each) for each in document["signatures"]] == [{"keyid", "sig"}]
    decoded = Envelope.decode(msgspec.json.encode(document))
    key.private.public_key().verify(decoded.signature, to_sign(decoded.payload))
    assert Payload.decode(decoded.payload).annotations == {"by": "me"}


def test_a_bound_name_and_an_end(bench: Workbench, key: Key) -> None:
    sign(bench, ENV, key.private, SignOptions(bound=True))
    renamed = Reference.parse("env/e:2")
    bench.local.tag(renamed, bench.resolve(ENV))
    assert check(bench, ENV, key)
    with pytest.raises(SignatureError, match="counts only for env/e:1"):
        check(bench, renamed, key)
    assert check(bench, renamed.pinned(bench.resolve(ENV).parsed_digest), key)
    sign(bench, BASE, key.private, SignOptions(expires=int(NOW)))
    with pytest.raises(SignatureError, match="has expired"):
        check(bench, BASE, key)
    sign(bench, BASE, key.private, SignOptions(expires=int(NOW) + 1))
    assert check(bench, BASE, key)
    by_digest = Reference.parse(f"base/b@{bench.resolve(BASE).digest}")
    with pytest.raises(InvalidInputError, match="no tag"):
        sign(bench, by_digest, key.private, SignOptions(bound=True))


Forgery = Callable[[Key, Key, Descriptor, Descriptor], bytes]

FORGERIES: dict[str, Forgery] = {
    "of another digest": lambda key, _, env, base: enveloped(
        key.private, Payload.of(base).encode()
    ),
    "claims another's key": lambda key, other, env, _: Envelope(
        Payload.of(env).encode(),
        key.pair.key_id,
        other.private.sign(to_sign(Payload.of(env).encode())),
    ).encode(),
    "not the payload's encoding": lambda key, _, env, __: enveloped(
        key.private, Payload.of(env).encode(), Payload.of(env).encode()
    ),
    "of another type of document": lambda key, _, env, __: enveloped(
        key.private,
        Payload.of(env).encode(),
        to_sign(Payload.of(env).encode()).replace(b"payload", b"paylord"),
    ),
    "another type": lambda key, _, env, __: enveloped(
        key.private, Payload.of(env).encode()
    ).replace(b"payload.v1", b"payload.v2"),
    "of another size": lambda key, _, env, __: enveloped(
        key.private, Payload.of(msgspec.structs.replace(env, size=1)).encode()
    ),
    "empty signature": lambda key, _, env, __: Envelope(
        Payload.of(env).encode(), key.pair.key_id, b""
    ).encode(),
    "signed nonsense": lambda key, _, env, __: enveloped(key.private, b"\xff"),
    "signed list": lambda key, _, env, __: enveloped(key.private, b"[]"),
    "no JSON": lambda *_: b"\xff\xfe",
    "deep JSON": lambda *_: b"[" * 60_000,
    "nothing": lambda *_: b"",
    "no signature": lambda key, _, env, __: msgspec.json.encode(
        {"payload": "", "payloadType": PAYLOAD_TYPE, "signatures": []}
    ),
    "no base64": lambda key, _, env, __: msgspec.json.encode(
        {"payload": "e30", "payloadType": PAYLOAD_TYPE, "signatures": [{"keyid": "", "sig": "ä"}]}
    ),
    "too long": lambda key, _, env, __: enveloped(key.private, Payload.of(env).encode()).ljust(
        65 << 10
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_forgeries_are_refused_and_hide_no_good_signature(
    bench: Workbench, key: Key, other: Key, forgery: Forgery
) -> None:
    env, base = bench.resolve(ENV), bench.resolve(BASE)
    attach(bench, env, forgery(key, other, env, base))
    with pytest.raises(SignatureError) as refused:
        check(bench, ENV, key)
    assert "has no signature" not in refused.value.message
    assert len(list_signatures(bench, ENV)) == 1
    sign(bench, ENV, key.private)
    assert check(bench, ENV, key)


def test_a_signature_that_was_changed_or_removed_in_the_store(bench: Workbench, key: Key) -> None:
    signed = sign(bench, ENV, key.private)
    folder = bench.local.root / "blobs"
    manifest = signed.signature.removeprefix("sha256:")
    path = folder / manifest[:2] / manifest
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(SignatureError, match="no blob"):
        check(bench, ENV, key)
    path.write_bytes(data[:-1] + b" ")
    with pytest.raises(SignatureError, match="corrupt"):
        check(bench, ENV, key)


def test_a_manifest_of_another_subject_is_refused(bench: Workbench, key: Key) -> None:
    sign(bench, BASE, key.private)
    (moved,) = bench.local.referrers(bench.resolve(BASE))
    bench.local.attach(bench.resolve(ENV), moved)
    with pytest.raises(SignatureError, match="but about"):
        check(bench, ENV, key)


def test_a_workbench_with_trust_stacks_composes_and_pulls_what_is_signed(
    bench: Workbench, key: Key, tmp_path: Path
) -> None:
    url = f"dir://{tmp_path}/store"
    moving.push(bench, ENV, url)
    moving.push(bench, TOOL, url)
    picky = Workbench(tmp_path / "there", [url], Trust.of([key.public]))
    with pytest.raises(SignatureError):
        moving.pull(picky, ENV)
    assert list(picky.local.blobs()) == [], "nothing was fetched"
    with pytest.raises(SignatureError):
        picky.stack(ENV)
    assert list(picky.local.blobs()) == []
    moving.pull(Workbench(tmp_path / "there", [url]), TOOL)
    with pytest.raises(SignatureError):
        composing.compose(picky, [TOOL, BASE], ENV)
    sign(bench, ENV, key.private, stores=[url])
    assert [layer.config.kind.value for layer in picky.stack(ENV).layers] == ["base", "toolkit"]
    with pytest.raises(SignatureError):
        composing.compose(picky, [TOOL, BASE], ENV)
    assert moving.pull(picky, ENV).digest == bench.resolve(ENV).digest
    offline = Workbench(tmp_path / "there", [], picky.trust)
    assert offline.stack(ENV), "the signature came along"


def test_a_tag_that_moves_between_check_and_copy_is_not_followed(
    bench: Workbench, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"dir://{tmp_path}/store"
    sign(bench, ENV, key.private)
    moving.push(bench, ENV, url)
    moving.push(bench, BASE, url)
    trust = Trust.of([key.public])

    class Racing(Trust):
        def check(
            self, store: AttachmentReader, reference: Reference, descriptor: Descriptor
        ) -> tuple[str, ...]:
            found = trust.check(store, reference, descriptor)
            DirectoryStore.open(tmp_path / "store").tag(ENV, bench.resolve(BASE))
            return found

    picky = Workbench(tmp_path / "there", [url], Racing(trust.keys))
    with pytest.raises(NotFoundError, match="is now"):
        moving.pull(picky, ENV)
    assert list(picky.local.tags()) == []


def test_a_store_that_lacks_what_is_signed(bench: Workbench, key: Key, tmp_path: Path) -> None:
    empty = DirectoryStore.open(tmp_path / "empty", create=True)
    with pytest.raises(NotFoundError, match="is not in dir://"):
        sign(bench, ENV, key.private, stores=[empty.url])
    assert list_signatures(bench, ENV) == [], "all or nothing"
