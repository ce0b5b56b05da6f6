"""A registry as companies run one: nginx asks another server who may do what, and hands on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import StoreError
from dsec_layers.model.reference import Reference
from dsec_layers.registry.oci.credentials import Credentials
from tests.integration.registry.oci.conftest import Open
from tests.support import gateway, nginx
from tests.support.gateway import Fault, Gateway, always, basic
from tests.support.oci_registry import Registry
from tests.support.stores import put_layer

BASE = Reference.parse("base/debian:12")
ANN = Credentials("ann", "secret")

# The question has method and path of what is asked for, and no body.
_SERVER = """
        location /token {{ proxy_pass http://{tokens}; }}
        location = /allowed {{
            internal;
            proxy_pass http://{judge}$request_uri;
            proxy_method $request_method;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }}
        location /v2/ {{
            auth_request /allowed;
            proxy_pass http://{upstream};
            proxy_set_header Host $http_host;
            proxy_request_buffering off;
        }}
"""


@pytest.mark.peers("docker-registry", "nginx")
def test_tokens_and_redirects(
    registry: Registry, front: Gateway, open_oci: Open, tmp_path: Path
) -> None:
    with (
        gateway.signed_storage(registry.address) as storage,
        gateway.before(registry.address) as judge,
        gateway.token_server(judge) as tokens,
    ):
        front.plan = storage.fault
        judge.plan = always(lambda _: True, Fault(200))  # whom it does not refuse
        tokens.basic = basic("ann", "secret")
        place = tokens.url.removeprefix("http://").removesuffix("/token")
        server = _SERVER.format(tokens=place, judge=judge.address, upstream=front.address)
        with nginx.running(tmp_path / "nginx", server) as address:
            judge.realm = f"http://{address}/token"
            pack = bytes(range(256)) * 80_000  # in three parts
            store = open_oci(address, ANN)
            base = put_layer(store, BASE, [pack])
            assert store.resolve(BASE) == base
            blob = next(each for each in store.blobs() if each.size == len(pack))
            assert b"".join(store.stream(blob)) == pack
            assert store.read(blob, 1000, 10) == pack[1000:1010]
            assert [found for found, _ in store.tags(BASE.kind, BASE.name)] == [BASE]
            with pytest.raises(StoreError, match="gives no token without credentials"):
                open_oci(address).resolve(BASE)
        assert front.methods("PATCH")
        assert storage.headers
        assert all("authorization" not in headers for headers in storage.headers)
