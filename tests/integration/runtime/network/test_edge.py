"""The edge's API over containers in networks, and its restart."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from dsec_runtime.edge.app import Guarded, application, local
from dsec_runtime.edge.building import built
from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.network.network import Network
from dsec_runtime.network.settings import Settings
from dsec_runtime.spec import MIB, Environment, Limits, NetworkCounts, NetworkRule, SandboxSpec
from dsec_runtime.tiers.container.settings import ContainerSettings
from tests.support import sandboxes as support
from tests.support.internet import ONE, TWO, Internet, connect, exchange, reaches

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]

SPEC = SandboxSpec(
    environment=Environment(reference=support.BASE),
    limits=Limits(memory_bytes=96 * MIB, disk_bytes=64 * MIB, pids=64),
    network=(NetworkRule(cidr=f"{ONE}/32"),),
)


@contextlib.asynccontextmanager
async def client(home: Path, world: Internet) -> AsyncIterator[httpx.AsyncClient]:
    """Of an edge over `home` that is there as long as this is."""
    config = EdgeConfig(
        home=home,
        container=ContainerSettings(spare_disks=1, launches=1),
        network=Settings(ready=1, counts_age_s=0.0, node=world.node, resolv_conf=world.resolv_conf),
    )
    with built(config) as edge:
        try:
            await edge.start()
            transport = httpx.ASGITransport(Guarded(application(edge), local))
            async with httpx.AsyncClient(transport=transport, base_url="http://edge") as made:
                yield made
        finally:
            await edge.close()


async def ask(asked: httpx.AsyncClient, method: str, path: str, body: object = None) -> bytes:
    content = None if body is None else msgspec.json.encode(body)
    response = await asked.request(method, f"/v1/sandboxes{path}", content=content, timeout=120)
    assert response.is_success, response.text
    return response.content


def netns(home: Path, sandbox: str) -> Path:
    folder = home / "run/netns"
    return folder / (folder / "claims" / sandbox).read_text()


async def test_rules_hold_are_changed_and_outlive_the_edge(world: Internet) -> None:
    support.agent()
    with support.home() as home:
        async with client(home, world) as edge:
            made = await ask(edge, "POST", "", SPEC)
            sandbox = msgspec.json.decode(made)["id"]
            inside = netns(home, sandbox)
            assert reaches(inside, ONE, 80)
            assert not reaches(inside, TWO, 80)
            told = await ask(edge, "GET", f"/{sandbox}/network")
            counts = msgspec.json.decode(told, type=NetworkCounts)
            assert counts.allowed_packets > 0
            assert [it.address for it in counts.refused] == [TWO]
        with connect(inside, ONE, 80) as connection:
            async with client(home, world) as edge:
                assert exchange(connection, b"on") == b"on"
                rules = {"rules": [NetworkRule(cidr=f"{TWO}/32")]}
                await ask(edge, "PUT", f"/{sandbox}/network", rules)
                with pytest.raises(ConnectionResetError):
                    exchange(connection, b"cut")
                assert reaches(inside, TWO, 80)
                await ask(edge, "DELETE", f"/{sandbox}")
        assert not inside.exists()
        assert not (home / "run/netns/router").exists()


async def test_one_without_its_network_is_lost(world: Internet) -> None:
    support.agent()
    with support.home() as home:
        async with client(home, world) as edge:
            sandbox = msgspec.json.decode(await ask(edge, "POST", "", SPEC))["id"]
        network = Network(home, Settings(ready=0, node=world.node))
        network.remove()
        async with client(home, world) as edge:
            info = msgspec.json.decode(await ask(edge, "GET", f"/{sandbox}"))
            assert info["state"] == "lost"
