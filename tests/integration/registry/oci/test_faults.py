"""A registry that is busy, falls short, breaks off or lies: told apart, and never believed."""

from __future__ import annotations

import os

import pytest

from dsec_layers.errors import CorruptError, NotFoundError, StoreError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry.oci.endpoint import StoreAddress
from dsec_layers.registry.oci.store import OciStore
from tests.integration.registry.oci.conftest import Open
from tests.support.gateway import Asked, Fault, Gateway, always, once
from tests.support.oci_registry import Registry
from tests.support.ports import free_port
from tests.support.stores import put_bytes, put_layer

pytestmark = pytest.mark.peers("docker-registry")

DATA = os.urandom(2_500_000)
BLOB = Descriptor.of(DATA, PACK_TYPE)
BASE = Reference.parse("base/debian:12")


@pytest.fixture
def store(open_oci: Open, front: Gateway) -> OciStore:
    return open_oci(front.address)


@pytest.fixture
def blob(store: OciStore) -> Descriptor:
    return put_bytes(store, DATA)


def gets_blob(asked: Asked) -> bool:
    return asked.method == "GET" and "/blobs/sha256" in asked.path


def everything(_: Asked) -> bool:
    return True


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_who_is_busy_is_asked_again(
    front: Gateway, store: OciStore, blob: Descriptor, waits: list[float], status: int
) -> None:
    front.plan = once(gets_blob, Fault(status), Fault(status))
    assert store.read(blob) == DATA
    assert len(waits) == 2
    front.plan = always(everything, Fault(status, body=b'{"errors":[{"code":"X","message":"Y"}]}'))
    with pytest.raises(StoreError, match=rf"{status} .*X: Y"):
        store.read(blob)
    assert len(waits) == 2 + 5


def test_retry_after_is_obeyed_within_bounds(
    front: Gateway, store: OciStore, blob: Descriptor, waits: list[float]
) -> None:
    front.plan = once(gets_blob, Fault(429, {"Retry-After": "7"}))
    assert store.read(blob) == DATA
    assert 7 <= waits[-1] < 8
    front.plan = once(gets_blob, Fault(503, {"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}))
    assert store.read(blob) == DATA
    assert waits[-1] < 1
    count = len(waits)
    front.plan = once(gets_blob, Fault(429, {"Retry-After": "3600"}))
    with pytest.raises(StoreError, match="asks to wait 3600 s"):
        store.read(blob)
    assert len(waits) == count


@pytest.mark.parametrize("hidden", [False, True])
def test_a_body_that_breaks_off_goes_on(
    front: Gateway, store: OciStore, blob: Descriptor, hidden: bool
) -> None:
    front.plan = once(gets_blob, Fault(cut=1_500_000, hide_length=hidden), Fault(cut=0))
    assert b"".join(store.stream(blob)) == DATA
    assert front.asked[-1].headers["range"] == f"bytes=1500000-{len(DATA) - 1}"
    front.plan = always(gets_blob, Fault(cut=0, hide_length=hidden))
    with pytest.raises(StoreError, match="keeps breaking off"):
        store.read(blob)


@pytest.mark.parametrize(
    "altered",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
)
def test_a_wrong_body_with_status_200_is_found_out(
    front: Gateway, store: OciStore, blob: Descriptor, altered: object
) -> None:
    front.plan = always(gets_blob, Fault(altered=altered))  # type: ignore[arg-type]
    with pytest.raises(CorruptError):
        store.read(blob)
    with pytest.raises(CorruptError):
        b"".join(store.stream(blob))


def test_a_wrong_manifest_is_found_out(front: Gateway, store: OciStore) -> None:
    base = put_layer(store, BASE, [b"pack"])
    front.plan = always(
        lambda asked: asked.method == "GET", Fault(altered=lambda data: data.replace(b"2", b"3"))
    )
    with pytest.raises(CorruptError):
        store.read(base)
    with pytest.raises(CorruptError):
        store.resolve(BASE)


def test_a_registry_without_ranges(front: Gateway, store: OciStore, blob: Descriptor) -> None:
    front.plan = always(gets_blob, Fault(no_range=True))
    assert store.read(blob, 2_000_000, 1000) == DATA[2_000_000:2_001_000]
    front.plan = once(gets_blob, Fault(cut=1_200_000), Fault(no_range=True))
    assert b"".join(store.stream(blob)) == DATA


def test_another_range_than_asked_for(front: Gateway, store: OciStore, blob: Descriptor) -> None:
    for told, error in (
        ("bytes 0-9/2500000", StoreError),
        ("nonsense", StoreError),
        ("bytes 100-104/105", CorruptError),
    ):
        headers = {"Content-Range": told}
        front.plan = always(gets_blob, Fault(206, headers, body=b"0123456789"))
        with pytest.raises(error):
            store.read(blob, 100, 10)


def test_403_for_head_is_no_answer(front: Gateway, store: OciStore, blob: Descriptor) -> None:
    front.plan = always(lambda asked: asked.method == "HEAD", Fault(403))
    assert store.has(blob)
    assert not store.has(Descriptor.of(b"absent", PACK_TYPE))
    front.plan = always(everything, Fault(403))
    with pytest.raises(StoreError, match="403"):
        store.has(blob)


@pytest.mark.parametrize("forward", [False, True])
def test_a_push_goes_on_where_it_broke_off(front: Gateway, store: OciStore, forward: bool) -> None:
    data = os.urandom(20_000_000)
    blob = Descriptor.of(data, PACK_TYPE)
    front.plan = once(
        lambda asked: asked.method == "PATCH" and len(front.methods("PATCH")) == 2,
        Fault(drop=True, forward=forward),
    )
    pieces = (data[start : start + 300_000] for start in range(0, len(data), 300_000))
    assert store.put(blob, data if forward else pieces) is True
    # docker-registry knows no way on when it has taken what we do not know of.
    assert len(front.methods("PATCH")) == (5 if forward else 4)
    assert len(front.methods("POST")) == (2 if forward else 1)
    assert b"".join(store.stream(blob)) == data


def test_the_answer_to_the_last_word_is_lost(front: Gateway, store: OciStore) -> None:
    front.plan = once(lambda asked: asked.method == "PUT", Fault(drop=True, forward=True))
    assert store.put(BLOB, DATA) is True
    assert store.read(BLOB) == DATA


def test_a_last_word_that_came_by_half_is_said_anew(front: Gateway, store: OciStore) -> None:
    """docker-registry then knows the upload no more, or holds what it has for something else."""
    front.plan = once(lambda asked: asked.method == "PUT", Fault(404), Fault(404))
    assert store.put(BLOB, iter([DATA[:7], DATA[7:]])) is True
    assert len(front.methods("POST")) == len(front.methods("PUT")) == 3
    assert len(front.methods("DELETE", "blobs/uploads")) == 2
    assert store.read(BLOB) == DATA
    other = Descriptor.of(b"other", PACK_TYPE)
    front.plan = always(lambda asked: asked.method == "PUT", Fault(404))
    with pytest.raises(NotFoundError):
        store.put(other, iter([b"other"]))
    assert not store.has(other)


def test_documents_that_break_off_are_asked_for_again(
    front: Gateway, store: OciStore, waits: list[float]
) -> None:
    base = put_layer(store, BASE, [b"pack"])
    for path in ("/manifests/", "/tags/list", "/_catalog"):
        front.plan = once(lambda asked, path=path: path in asked.path, Fault(cut=5), Fault(cut=0))  # type: ignore[misc]
        waits.clear()
        assert (BASE, base) in list(store.tags())
        assert len(waits) == 2, path
    front.plan = always(lambda asked: "/manifests/" in asked.path, Fault(cut=5))
    with pytest.raises(StoreError, match="keeps breaking off"):
        store.resolve(BASE)


def test_a_push_that_fails_is_taken_back(front: Gateway, store: OciStore) -> None:
    data = os.urandom(20_000_000)
    blob = Descriptor.of(data, PACK_TYPE)
    front.plan = always(lambda asked: asked.method == "PATCH", Fault(503))
    with pytest.raises(StoreError, match="503"):
        store.put(blob, data)
    assert front.methods("DELETE", "blobs/uploads")
    assert not store.has(blob)
    front.plan = lambda _: None
    assert store.put(blob, data) is True


def test_a_registry_without_mounts_gets_the_bytes(front: Gateway, store: OciStore) -> None:
    front.mounts = False
    base = put_layer(store, BASE, [DATA])
    assert store.resolve(BASE) == base
    named = front.methods("POST", "base/debian/blobs/uploads/$")
    assert len(named) == 4


def test_no_list_of_repositories(front: Gateway, store: OciStore) -> None:
    base = put_layer(store, BASE, [b"pack"])
    for status in (401, 403, 404, 405):
        front.plan = always(lambda asked: "_catalog" in asked.path, Fault(status))
        with pytest.raises(StoreError) as caught:
            list(store.tags())
        assert "name a layer in full" in (caught.value.hint or "")
    assert store.resolve(BASE) == base
    assert list(store.tags(BASE.kind, BASE.name)) == [(BASE, base)]


def test_lists_come_in_pages(
    front: Gateway, store: OciStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dsec_layers.registry.oci import listing

    monkeypatch.setattr(listing, "_PAGE", 2)
    base = put_layer(store, BASE, [b"pack"])
    names = [Reference.parse(f"toolkit/t{number}:1") for number in range(3)]
    for reference in names:
        put_layer(store, reference, [b"pack"])
    for tag in ("a", "b", "c"):
        store.tag(Reference.parse(f"base/debian:{tag}"), base)
    found = [reference for reference, _ in store.tags()]
    assert [str(each) for each in found] == [
        *(f"base/debian:{tag}" for tag in ("12", "a", "b", "c")),
        *map(str, names),
    ]
    assert front.methods("GET", "_catalog.*last=")


def test_redirects_without_end_and_to_other_schemes(
    front: Gateway, store: OciStore, blob: Descriptor
) -> None:
    here = f"http://{front.address}/v2/x/blobs/sha256:0"
    front.plan = always(lambda asked: asked.method == "GET", Fault(307, {"Location": here}))
    with pytest.raises(StoreError, match="without end"):
        store.read(blob)
    front.plan = always(gets_blob, Fault(302, {"Location": "file:///etc/passwd"}))
    with pytest.raises(StoreError, match="redirects to file:"):
        store.read(blob)


def test_nobody_there(waits: list[float]) -> None:
    from dsec_layers.registry.oci.client import Client
    from dsec_layers.registry.patience import Patience

    address = StoreAddress.parse(f"oci+http://127.0.0.1:{free_port()}/x")
    store = OciStore(address, Client(address.endpoint, patience=Patience(sleep=waits.append)))
    with pytest.raises(StoreError, match=r"cannot reach 127\.0\.0\.1"):
        store.resolve(BASE)
    assert len(waits) == 5
    with pytest.raises(StoreError):
        store.has(BLOB)
    store.close()


def test_a_registry_without_tls_is_not_spoken_to_as_one_with(registry: Registry) -> None:
    store = OciStore.open(f"oci://{registry.address}/x")
    with pytest.raises(StoreError) as caught:
        store.resolve(BASE)
    assert "oci+http://" in (caught.value.hint or "")
    store.close()


def test_a_disk_that_is_full_in_the_registry(front: Gateway, store: OciStore) -> None:
    from dsec_layers.errors import NoSpaceError

    front.plan = always(lambda asked: asked.method == "PUT", Fault(507))
    with pytest.raises(NoSpaceError):
        store.put(BLOB, DATA)


def test_a_blob_that_storage_has_lost(front: Gateway, store: OciStore, blob: Descriptor) -> None:
    front.plan = always(gets_blob, Fault(404))
    with pytest.raises(NotFoundError):
        store.read(blob)
