"""An environment in a registry, mounted lazily from there; and a registry behind TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import CapabilityMissingError, StoreError
from dsec_layers.model.reference import Reference
from dsec_layers.registry.oci.store import OciStore
from tests.support import nginx
from tests.support.cli import BASE, Cli, bare, base_store, cli
from tests.support.oci_registry import Registry
from tests.support.stores import put_layer

__all__ = ["bare", "base_store", "cli"]

_SERVER = """
        ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
        location / {{
            proxy_pass http://{upstream};
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto https;
        }}
"""


@pytest.mark.peers("docker-registry")
@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.erofs
def test_an_environment_is_mounted_from_a_registry(
    cli: Cli, registry: Registry, prefix: str
) -> None:
    url = registry.url(prefix)
    cli.add("toolkit/t:1", {"t": "t" * 50_000})
    cli("compose", BASE, "toolkit/t:1", "-t", "env/e:1")
    first = cli.json("push", "env/e:1", url)
    assert first["sent_bytes"] > 1_000_000
    assert cli.json("push", "env/e:1", url)["sent_bytes"] == 0
    other = Cli(cli.folder / "other", cli.environ)
    other.folder.mkdir()
    target = other.folder / "mnt"
    target.mkdir()
    other("--store", url, "mount", "env/e:1", target)
    assert (target / "t").read_text() == "t" * 50_000
    assert (target / "bin/sh").stat().st_size > 1000
    other("umount", target)
    assert other("pull", "env/e:1", url)
    assert other("ls", "--in", url).count("env/e") == 1
    other.fails(CapabilityMissingError, "gc", url)
    other.run("daemon", "stop", "--force")


@pytest.fixture
def tls(registry: Registry, tmp_path: Path) -> Iterator[str]:
    """The address of nginx, which speaks TLS by a certificate of its own, before the registry."""
    certificate = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")),
    ]
    subprocess.run(certificate, check=True, capture_output=True)
    server = _SERVER.format(folder=tmp_path, upstream=registry.address)
    with nginx.running(tmp_path / "nginx", server, how="ssl") as address:
        yield address


@pytest.mark.peers("docker-registry", "nginx", "openssl")
def test_a_registry_behind_tls(tls: str, prefix: str, tmp_path: Path) -> None:
    reference = Reference.parse("base/debian:12")
    store = OciStore.open(f"oci://{tls}/{prefix}?ca={tmp_path}/cert.pem")
    base = put_layer(store, reference, [b"pack" * 5_000_000])
    assert store.resolve(reference) == base
    assert [found for found, _ in store.tags()] == [reference]
    store.close()
    stranger = OciStore.open(f"oci://{tls}/{prefix}")
    with pytest.raises(StoreError, match="no trusted connection") as caught:
        stranger.resolve(reference)
    assert "?ca=FILE" in (caught.value.hint or "")
    stranger.close()
