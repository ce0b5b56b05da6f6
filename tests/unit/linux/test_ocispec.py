from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsec_layers.linux.ocispec import DEFAULT_PATH, Bind, Command, specification
from dsec_layers.linux.users import User

ROOT, USER = User(0, 0, (), "/root"), User(5, 6, (7, 8), "/home/u")


def spec(user: User = ROOT, binds: tuple[Bind, ...] = (), **options: Any) -> dict[str, Any]:
    command = Command(rootfs=Path("/r"), argv=("a", "b"), **options)
    found = json.loads(json.dumps(specification(command, user, binds, cgroup="name")))
    assert isinstance(found, dict)
    return found


def test_environment_has_a_path_and_a_home_unless_given() -> None:
    assert spec()["process"]["env"] == [f"PATH={DEFAULT_PATH}", "HOME=/root"]
    given = spec(USER, env={"PATH": "/x", "A": "1"})["process"]["env"]
    assert given == ["PATH=/x", "HOME=/home/u", "A=1"]


def test_a_user_other_than_root_has_no_capability() -> None:
    process = spec(USER)["process"]
    assert process["user"] == {"uid": 5, "gid": 6, "additionalGids": [7, 8]}
    assert process["capabilities"]["effective"] == process["capabilities"]["permitted"] == []
    assert "CAP_SYS_ADMIN" not in process["capabilities"]["bounding"]


@pytest.mark.parametrize(("network", "separate"), [("host", False), ("none", True)])
def test_network(network: str, separate: bool) -> None:
    kinds = [it["type"] for it in spec(network=network)["linux"]["namespaces"]]
    assert {"pid", "mount", "ipc", "uts"} <= set(kinds)
    assert ("network" in kinds) is separate


def test_binds_come_last_and_in_order() -> None:
    binds = (Bind(Path("/a"), "/x"), Bind(Path("/b"), "/x/y", read_only=False))
    last = spec(binds=binds)["mounts"][-2:]
    assert [(it["source"], it["destination"]) for it in last] == [("/a", "/x"), ("/b", "/x/y")]
    assert ["ro" in it["options"] for it in last] == [True, False]


def test_devices_are_refused_before_the_harmless_are_allowed() -> None:
    rules = spec()["linux"]["resources"]["devices"]
    assert rules[0] == {"allow": False, "access": "rwm"}
    readable = [rule for rule in rules if rule["allow"] and "r" in rule["access"]]
    assert {rule["type"] for rule in readable} == {"c"}
    assert {rule["major"] for rule in readable} == {1, 5, 136}


def test_a_terminal_has_a_type_and_our_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "123")
    monkeypatch.setenv("LINES", "45")
    assert "consoleSize" not in spec()["process"]
    process = spec(tty=True)["process"]
    assert process["terminal"] is True
    assert process["consoleSize"] == {"height": 45, "width": 123}
    assert "TERM=xterm" in process["env"]
