"""What callers write, as the edge gets it."""

from __future__ import annotations

import pytest

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.sdk import address
from dsec_runtime.sdk.args import DSecContainerRunArgs, DSecEnvironment
from dsec_runtime.spec import MIB, Environment, NetworkRule, Tier


def test_the_words_of_the_paper() -> None:
    spec = DSecContainerRunArgs(
        container_image="debian:12",
        memory_limit_mb=512,
        cpu_cores_limit=1.5,
        ttl_running_stop=600,
        network_rules={"npm": False, "pypi": True},
        init_user="agent",
    ).spec("me")
    assert spec.tier is Tier.CONTAINER
    assert spec.environment == Environment(image="debian:12")
    assert spec.limits.memory_bytes == 512 * MIB
    assert spec.limits.cpu_cores == 1.5
    assert spec.lifetime.idle_s == 600
    assert spec.network == (
        NetworkRule(service="npm", allow=False),
        NetworkRule(service="pypi", allow=True),
    )
    assert (spec.user, spec.owner) == ("agent", "me")


def test_environments_by_reference_or_by_layers() -> None:
    named = DSecContainerRunArgs(environment="env/demo:v1").spec()
    assert named.environment == Environment(reference="env/demo:v1")
    layers = DSecEnvironment(base="base/a:1", workspace="workspace/b:2", toolkits=["toolkit/c:3"])
    stacked = DSecContainerRunArgs(environment=layers).spec()
    assert stacked.environment.layers == ("base/a:1", "workspace/b:2", "toolkit/c:3")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"container_image": "a", "environment": "b"},
        {"environment": "a", "memory_limit_mb": 1},
        {"environment": "a", "cpu_cores_limit": 0},
        {"environment": "a", "ttl_running_stop": -1},
        {"environment": "a", "hostname": "no spaces"},
        {"environment": "a", "network_rules": {"not a name": True}},
    ],
)
def test_nonsense_is_refused_before_it_travels(given: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        DSecContainerRunArgs(**given).spec()  # type: ignore[arg-type]


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSEC_EDGE", raising=False)
    monkeypatch.setenv("DSEC_HOME", "/some/home")
    assert address.parse().socket == "/some/home/run/edge.sock"
    monkeypatch.setenv("DSEC_EDGE", "https://node:7443/")
    assert address.parse() == address.Address(None, "https://node:7443")
    assert str(address.parse("unix:///a/b")) == "unix:///a/b"


@pytest.mark.parametrize("text", ["http://node:1", "unix://relative", "/path", "https://", "ssh:x"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        address.parse(text)
