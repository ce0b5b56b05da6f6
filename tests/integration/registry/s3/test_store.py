"""What is special about a store in a bucket."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dsec_layers.errors import ConflictError, CorruptError, NotFoundError, StoreError
from dsec_layers.model.manifest import CONFIG_TYPE, PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import transfer
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.naming import blob_name
from dsec_layers.registry.patience import Patience
from dsec_layers.registry.s3.store import S3Store
from dsec_layers.registry.urls import open_store
from tests.support import faultgate, s3servers
from tests.support.closure import check_closures
from tests.support.faultgate import Fault, FaultGate
from tests.support.ports import free_port
from tests.support.s3servers import BUCKET, OPEN_BUCKET, S3Server
from tests.support.stores import put_bytes, put_environment, put_layer

DATA = bytes(range(256)) * 9000
BLOB = Descriptor.of(DATA, PACK_TYPE)
BASE, ENV = Reference.parse("base/debian:12"), Reference.parse("env/demo:1")
QUICK = Patience(sleep=lambda _: None)

pytestmark = pytest.mark.usefixtures("aws")


@pytest.fixture
def prefix() -> str:
    return f"store/{uuid4()}"


@pytest.fixture
def gate(seaweed: S3Server) -> Iterator[FaultGate]:
    with faultgate.before(seaweed.endpoint.removeprefix("http://")) as gate:
        yield gate


@pytest.fixture
def store(gate: FaultGate, seaweed: S3Server, prefix: str) -> Iterator[S3Store]:
    """A store behind the gate."""
    url = seaweed.url(prefix).replace(seaweed.endpoint, f"http://{gate.address}")
    store = S3Store.open(url, create=True, patience=QUICK)
    gate.reset()
    yield store
    store.close()


def test_the_bytes_and_names_are_those_of_a_directory_store(
    seaweed: S3Server, store: S3Store, prefix: str, tmp_path: Path
) -> None:
    local = DirectoryStore.open(tmp_path / "local", create=True)
    layer = put_layer(local, BASE, [DATA, b"pack two"])
    put_environment(local, ENV, [(Kind.BASE, "debian", layer)])
    for reference in (BASE, ENV):
        copied = transfer.copy(reference, local, store)
        assert copied.target == local.resolve(reference) == store.resolve(reference)
    files = {
        str(path.relative_to(local.root)): path.read_bytes()
        for folder in ("packs", "blobs")
        for path in (local.root / folder).rglob("*")
        if path.is_file()
    }
    keys = [key.removeprefix(f"{prefix}/") for key in seaweed.keys(f"{prefix}/")]
    others = {"dsec-store.json", "refs/base/debian/@12.json", "refs/env/demo/@1.json"}
    assert set(keys) == files.keys() | others
    for name, data in files.items():
        got = seaweed.client.get_object(Bucket=BUCKET, Key=f"{prefix}/{name}")
        assert got["Body"].read() == data
    back = DirectoryStore.open(tmp_path / "back", create=True)
    transfer.copy(ENV, store, back)
    assert check_closures(back) == [str(ENV)]


def test_a_server_that_knows_no_ranges(seaweed: S3Server, gate: FaultGate, prefix: str) -> None:
    place = f"s3://{OPEN_BUCKET}/{prefix}?endpoint="
    open_store(f"{place}{seaweed.endpoint}", create=True).put(BLOB, DATA)
    store = open_store(f"{place}http://{gate.address}&anonymous=1")  # Range would be signed
    gate.reset(lambda _number, _line: Fault(no_range=True))
    for offset, length in ((0, 10), (5, 100), (1_500_000, 700_000), (len(DATA) - 1, 1)):
        assert store.read(BLOB, offset, length) == DATA[offset : offset + length]


def test_a_body_that_breaks_off_is_continued_where_it_did(store: S3Store, gate: FaultGate) -> None:
    store.put(BLOB, DATA)
    gate.reset(faultgate.whenever("GET", Fault(cut_answer=True), times=5))
    assert b"".join(store.stream(BLOB)) == DATA
    assert gate.requests == 6
    gate.reset(faultgate.whenever("GET", Fault(drop=True), times=100))
    with pytest.raises(StoreError):
        store.read(BLOB, 0, 10)
    assert gate.requests == QUICK.attempts


def test_changed_bytes_are_corrupt(store: S3Store, gate: FaultGate) -> None:
    store.put(BLOB, DATA)
    for ask in (store.read, lambda blob: list(store.stream(blob))):
        gate.reset(faultgate.whenever("GET", Fault(flip_answer=True)))
        with pytest.raises(CorruptError, match=BLOB.digest):
            ask(BLOB)


@pytest.mark.parametrize("size", [0, 100, len(DATA) + 1])
def test_an_object_of_another_size_is_corrupt_and_the_next_put_heals_it(
    seaweed: S3Server, store: S3Store, prefix: str, size: int
) -> None:
    wrong = (DATA + b"x")[:size]
    key = f"{prefix}/{blob_name(BLOB)}"
    seaweed.client.put_object(Bucket=BUCKET, Key=key, Body=wrong)
    assert not store.has(BLOB)
    for ask in (
        store.read,
        lambda blob: store.read(blob, 90, 20),
        lambda blob: list(store.stream(blob)),
    ):
        with pytest.raises(CorruptError):
            ask(BLOB)
    assert store.put(BLOB, iter([DATA])) is True
    assert store.read(BLOB) == DATA


def test_what_was_not_found_is_not_looked_for_again(store: S3Store, gate: FaultGate) -> None:
    assert not store.has(BLOB)
    gate.reset()
    assert store.put(BLOB, DATA) is True
    assert gate.requests == 1
    assert store.put(BLOB, DATA) is False


@pytest.mark.parametrize("size", [len(DATA), 100])
def test_what_another_wrote_since_it_was_not_found_stays(
    seaweed: S3Server, store: S3Store, prefix: str, size: int
) -> None:
    assert not store.has(BLOB)
    key = f"{prefix}/{blob_name(BLOB)}"
    seaweed.client.put_object(Bucket=BUCKET, Key=key, Body=DATA[:size])
    if size == BLOB.size:
        assert store.put(BLOB, DATA) is False
        return
    with pytest.raises(StoreError, match="something else"):
        store.put(BLOB, DATA)
    assert store.put(BLOB, DATA) is True
    assert store.read(BLOB) == DATA


def test_objects_of_others_are_passed_over(seaweed: S3Server, store: S3Store, prefix: str) -> None:
    layer = put_layer(store, BASE, [DATA])
    blobs = list(store.blobs())
    for name in (
        *("refs/base/debian/@12.lock", "refs/base/debian/readme", "refs/other/x/@1.json"),
        *("packs/tmp-1-x", "packs/aa/readme", "refs/base/Bad Name/@1.json"),
    ):
        seaweed.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=b"?")
    assert list(store.tags()) == [(BASE, layer)]
    assert list(store.blobs()) == blobs


def test_a_malformed_reference_is_corrupt(seaweed: S3Server, store: S3Store, prefix: str) -> None:
    key = f"{prefix}/refs/base/debian/@12.json"
    for data in (b"", b"{", b'{"mediaType":"x","digest":"y","size":1}', b"x" * 100_000):
        seaweed.client.put_object(Bucket=BUCKET, Key=key, Body=data)
        with pytest.raises(CorruptError):
            store.resolve(BASE)


def test_more_than_a_page(store: S3Store) -> None:
    layer = put_layer(store, BASE, [b"pack"])
    names = [Reference.parse(f"toolkit/many:{number}") for number in range(1100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.tag(name, layer), names))
    assert [name for name, _ in store.tags(Kind.TOOLKIT)] == sorted(names)


def test_uploads_of_writers_that_died_are_aborted(
    seaweed: S3Server, store: S3Store, prefix: str
) -> None:
    for name in ("packs/aa/one", "packs/bb/two"):
        key = f"{prefix}/{name}"
        upload = seaweed.client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        seaweed.client.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"x")
    assert store.remove_stale() == 0
    assert len(seaweed.uploads(prefix)) == 2
    assert store.remove_stale(older_than_s=-60) == 2
    assert seaweed.uploads(prefix) == []


@pytest.mark.parametrize("fault", [Fault(deaf=True), Fault(cut_answer=True)])
def test_who_loses_the_answer_to_a_swap_knows_its_own_tag(
    store: S3Store, gate: FaultGate, fault: Fault
) -> None:
    layer = put_layer(store, BASE, [b"pack"])
    other = put_layer(store, Reference.parse("base/debian:next"), [b"other"])
    fresh = Reference.parse("base/debian:fresh")
    store.tag(Reference.parse("base/debian:probe"), layer, expected=None)
    for target, expected in ((layer, None), (other, layer)):
        gate.reset(faultgate.whenever("PUT", fault))
        store.tag(fresh, target, expected=expected)
        assert store.resolve(fresh) == target
    gate.reset(faultgate.whenever("PUT", fault))
    with pytest.raises(ConflictError):
        store.tag(fresh, layer, expected=None)


def test_probes_leave_nothing(
    seaweed: S3Server, rclone: S3Server, store: S3Store, prefix: str
) -> None:
    layer = put_layer(store, BASE, [b"pack"])
    store.tag(BASE, layer, expected=layer)
    careless = S3Store.open(rclone.url(prefix), create=True)
    layer = put_layer(careless, BASE, [b"pack"])
    with pytest.raises(StoreError, match="ignores If-None-Match"):
        careless.tag(BASE, layer, expected=layer)
    for server in (seaweed, rclone):
        assert [key for key in server.keys(f"{prefix}/") if "/probes/" in key] == []


def test_what_cannot_be_opened(seaweed: S3Server, prefix: str) -> None:
    with pytest.raises(StoreError, match="there is no store") as absent:
        open_store(seaweed.url(prefix))
    assert absent.value.hint
    for create in (False, True):
        with pytest.raises(StoreError, match="NoSuchBucket") as bucket:
            open_store(f"s3://no-such-bucket/x?endpoint={seaweed.endpoint}", create=create)
        assert "make the bucket" in (bucket.value.hint or "")
    seaweed.client.put_object(Bucket=BUCKET, Key=f"{prefix}/dsec-store.json", Body=b'{"layout":2}')
    with pytest.raises(StoreError, match="layout"):
        open_store(seaweed.url(prefix), create=True)


def test_a_server_that_is_not_there(prefix: str) -> None:
    port = free_port()
    with pytest.raises(StoreError, match=str(port)):
        S3Store.open(f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port}", patience=QUICK)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "x"}, "access key"),
        ({**s3servers.ENVIRON, "AWS_SECRET_ACCESS_KEY": "wrong"}, "secret key"),
    ],
)
def test_credentials_that_are_missing_or_wrong(
    seaweed: S3Server, prefix: str, environ: dict[str, str], said: str
) -> None:
    with s3servers.credentials(environ), pytest.raises(StoreError) as caught:
        open_store(seaweed.url(prefix), create=True)
    assert said in (caught.value.hint or "")
    assert "wrong" not in caught.value.message


def test_a_profile(seaweed: S3Server, prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        f"[team]\naws_access_key_id={s3servers.KEY}\naws_secret_access_key={s3servers.SECRET}\n"
    )
    with s3servers.credentials({"AWS_SHARED_CREDENTIALS_FILE": str(file)}):
        assert open_store(seaweed.url(prefix, profile="team"), create=True)


def test_anybody_may_read_what_is_open(seaweed: S3Server, prefix: str) -> None:
    url = f"s3://{OPEN_BUCKET}/{prefix}?endpoint={seaweed.endpoint}"
    layer = put_layer(open_store(url, create=True), BASE, [DATA])
    with s3servers.credentials({}):
        store = open_store(f"{url}&anonymous=1")
        assert store.resolve(BASE) == layer
        assert check_closures(store) == [str(BASE)]
        with pytest.raises(StoreError) as refused:
            put_bytes(store, b"mine", CONFIG_TYPE)
        assert "rights" in (refused.value.hint or "")


def test_a_certificate_of_ones_own(seaweed: S3Server, prefix: str, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    upstream = seaweed.endpoint.removeprefix("http://")
    with faultgate.before(upstream, tls=context) as gate:
        url = f"s3://{BUCKET}/{prefix}?endpoint=https://{gate.address}"
        with pytest.raises(StoreError, match=r"(?i)certificate"):
            open_store(url, create=True)
        store = open_store(f"{url}&ca={certificate}", create=True)
        assert put_bytes(store, DATA) == BLOB
        assert store.read(BLOB) == DATA


def test_a_file_that_cannot_be_read(store: S3Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot write"):
        store.put(BLOB, tmp_path / "absent")
    with pytest.raises(NotFoundError):
        store.read(BLOB)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(built.public_bytes(encoding))
    (folder / "key.pem").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"
