"""Basic auth and tokens: sent where they belong, renewed once, and never anywhere else."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import StoreError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry.oci.credentials import Credentials
from dsec_layers.registry.oci.store import OciStore
from tests.integration.registry.oci.conftest import Open
from tests.support import gateway, oci_registry
from tests.support.gateway import Asked, Fault, Gateway, TokenServer, basic, once
from tests.support.oci_registry import Registry
from tests.support.stores import put_bytes, put_layer

pytestmark = pytest.mark.peers("docker-registry")

BASE = Reference.parse("base/debian:12")
ANN = Credentials("ann", "secret")
# bcrypt of "secret"
_HTPASSWD = "ann:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"


@pytest.fixture
def tokens(front: Gateway) -> Iterator[TokenServer]:
    with gateway.token_server(front) as server:
        yield server


def test_basic_auth(front: Gateway, open_oci: Open) -> None:
    front.basic = basic("ann", "secret")
    store = open_oci(front.address, ANN)
    base = put_layer(store, BASE, [b"pack" * 1000])
    assert store.resolve(BASE) == base
    refused = [each for each in front.asked if "authorization" not in each.headers]
    assert len(refused) == 1, "asked once, then it is known"
    for who in (None, Credentials("ann", "wrong")):
        front.asked.clear()
        with pytest.raises(StoreError, match="401") as caught:
            open_oci(front.address, who).resolve(BASE)
        assert "login" in (caught.value.hint or "")
        assert len(front.asked) <= 2, "what is refused is not sent again"


def test_tokens_are_asked_for_by_what_is_done(
    front: Gateway, tokens: TokenServer, open_oci: Open, prefix: str
) -> None:
    tokens.basic = basic("ann", "secret")
    store = open_oci(front.address, ANN)
    put_layer(store, BASE, [b"pack" * 1000, b"another"])
    store.resolve(BASE)
    wanted = [scopes for _, scopes in tokens.asked]
    assert len(wanted) == len({tuple(sorted(scopes)) for scopes in wanted}), "each once"
    common, named = f"repository:{prefix}/blobs", f"repository:{prefix}/base/debian"
    assert wanted[0] == [f"{common}:pull"]
    assert [f"{named}:pull,push", f"{common}:pull"] in [scopes[:2] for scopes in wanted]
    refused = [each for each in front.asked if "authorization" not in each.headers]
    assert len(wanted) <= len(refused) < len(wanted) + 8  # threads that need the same at once


def test_without_credentials_an_anonymous_token_is_taken(
    front: Gateway, tokens: TokenServer, open_oci: Open
) -> None:
    put_bytes(open_oci(front.address), b"data")
    assert {who for who, _ in tokens.asked} == {""}


def test_an_identity_token_is_exchanged(
    front: Gateway, tokens: TokenServer, open_oci: Open
) -> None:
    tokens.basic = "identity"
    store = open_oci(front.address, Credentials(identity_token="identity"))
    assert store.read(put_bytes(store, b"data")) == b"data"


def test_a_token_that_expires_is_renewed_once_for_each_401(
    front: Gateway, tokens: TokenServer, open_oci: Open
) -> None:
    store = open_oci(front.address)
    blob = put_bytes(store, b"data")
    before = len(tokens.asked)
    front.tokens.clear()  # as if their time were over
    assert store.read(blob) == b"data"
    assert len(tokens.asked) == before + 1
    front.tokens.clear()
    tokens.narrow = True
    front.asked.clear()
    with pytest.raises(StoreError, match="401"):
        store.read(blob)
    assert len(tokens.asked) == before + 2
    assert len(front.asked) == 2


def test_a_401_in_the_middle_of_a_push(front: Gateway, tokens: TokenServer, open_oci: Open) -> None:
    data = bytes(20_000_000)
    blob = Descriptor.of(data, PACK_TYPE)
    store = open_oci(front.address)

    def plan(asked: Asked) -> Fault | None:
        if len(front.methods("PATCH")) == 1:
            front.tokens.clear()
        return None

    front.plan = plan
    assert store.put(blob, iter([data[:10_000_000], data[10_000_000:]])) is True
    assert len(front.methods("PATCH")) == 4  # the second is refused and sent again
    assert store.read(blob) == data


def test_a_token_server_that_refuses(front: Gateway, tokens: TokenServer, open_oci: Open) -> None:
    tokens.refuse = True
    with pytest.raises(StoreError, match="gives no token without credentials") as caught:
        open_oci(front.address).resolve(BASE)
    assert "login" in (caught.value.hint or "")
    assert len(tokens.asked) == 1


def test_a_short_lived_token_is_not_sent_when_its_time_is_over(
    front: Gateway, tokens: TokenServer, open_oci: Open
) -> None:
    tokens.life_s = 0
    store = open_oci(front.address)
    put_bytes(store, b"data")
    assert all("authorization" in each.headers for each in front.asked[1::2])
    assert len(tokens.asked) >= 2


def test_redirects_get_no_credentials(
    front: Gateway, registry: Registry, tokens: TokenServer, open_oci: Open
) -> None:
    with gateway.signed_storage(registry.address) as storage:
        front.plan = storage.fault
        store = open_oci(front.address, ANN)
        data = bytes(range(256)) * 10_000
        blob = put_bytes(store, data)
        assert store.has(blob), "the URL is signed for GET alone, HEAD gives 403"
        assert store.read(blob) == b"".join(store.stream(blob)) == data
        assert store.read(blob, 1000, 10) == data[1000:1010]
        assert storage.headers
        assert all("authorization" not in headers for headers in storage.headers)
        assert any(headers.get("range") == "bytes=1000-1009" for headers in storage.headers)


def test_a_signed_url_that_expires_in_the_middle(
    front: Gateway, registry: Registry, open_oci: Open
) -> None:
    with gateway.signed_storage(registry.address) as storage:
        front.plan = storage.fault
        store = open_oci(front.address)
        data = bytes(range(256)) * 20_000
        blob = put_bytes(store, data)
        storage.uses, storage.cut = 1, 2_000_000
        front.asked.clear()
        assert b"".join(store.stream(blob)) == data
        ranges = [headers.get("range") for headers in storage.headers[-2:]]
        assert ranges == [None, f"bytes=2000000-{len(data) - 1}"]
        assert len(front.methods("GET")) == 2, "the registry was asked for another URL"
        storage.uses = 0
        with pytest.raises(StoreError, match="403"):
            store.read(blob)


def test_real_basic_auth_and_the_files_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "htpasswd").write_text(_HTPASSWD)
    auth = f"auth: {{htpasswd: {{realm: test, path: {tmp_path}/htpasswd}}}}"
    with oci_registry.running(tmp_path / "r", more=auth) as registry:
        config = {"credHelpers": {registry.address: "test"}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        helper = tmp_path / "docker-credential-test"
        helper.write_text('#!/bin/sh\ncat >&2\necho \'{"Username":"ann","Secret":"secret"}\'\n')
        helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
        store = OciStore.open(registry.url())
        base = put_layer(store, BASE, [b"pack" * 1000])
        assert store.resolve(BASE) == base
        store.close()
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nowhere"))
        monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
        anonymous = OciStore.open(registry.url())
        with pytest.raises(StoreError, match="401"):
            anonymous.resolve(BASE)
        anonymous.close()


def test_a_401_for_nothing_is_not_a_loop(front: Gateway, open_oci: Open) -> None:
    front.plan = once(lambda _: True, Fault(401), Fault(401))
    with pytest.raises(StoreError, match="401"):
        open_oci(front.address, ANN).resolve(BASE)
    assert len(front.asked) == 1
