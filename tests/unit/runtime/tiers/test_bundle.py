"""What an OCI runtime is told of a sandbox."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.resources.identities import Identity
from dsec_runtime.resources.views import View
from dsec_runtime.spec import Limits
from dsec_runtime.tiers.container import bundle, seccomp
from dsec_runtime.tiers.container.bundle import Wish
from dsec_runtime.tiers.container.places import Places
from dsec_runtime.tiers.container.settings import ContainerSettings

WISH = Wish(
    root=Path("/srv/box"),
    hostname="box",
    identity=Identity(1 << 20),
    views=[View(Path("/views/sys"), "/sys")],
    network=None,
    new_privileges=False,
    shm_bytes=4096,
    command_oom_score=0,
    group=None,
    cgroup_view=False,
    annotations={},
)


def told(**changes: Any) -> Any:
    """The content of config.json."""
    return json.loads(bundle.encoded(msgspec.structs.replace(WISH, **changes)))


def test_a_world_of_its_own() -> None:
    linux = told()["linux"]
    kinds = {"pid", "mount", "ipc", "uts", "user", "cgroup", "network"}
    assert {each["type"] for each in linux["namespaces"]} == kinds
    ids = [{"containerID": 0, "hostID": 1 << 20, "size": 65536}]
    assert linux["uidMappings"] == linux["gidMappings"] == ids
    assert "cgroupsPath" not in linux


def test_a_compiled_filter_is_given_beside_the_profile(tmp_path: Path) -> None:
    compiled = seccomp.Compiled()
    compiled.learn(tmp_path)
    assert compiled.annotations == {}  # of a runtime that leaves none
    for content in (b"", b"cut off", bytes(16), bytes(24)):
        (tmp_path / "seccomp.bpf").write_bytes(content)
        compiled.learn(tmp_path)
    config = told(annotations=compiled.annotations)
    assert [base64.b64decode(it) for it in config["annotations"].values()] == [bytes(16)]
    assert config["linux"]["seccomp"] == seccomp.profile()


def test_a_network_that_is_there() -> None:
    namespaces = told(network=Path("/net"))["linux"]["namespaces"]
    assert {"type": "network", "path": "/net"} in namespaces


def test_privileges() -> None:
    process = told()["process"]
    assert "--no-new-privileges" in process["args"]
    assert "--no-new-privileges" not in told(new_privileges=True)["process"]["args"]
    assert not process["noNewPrivileges"]  # else Landlock would be all that the agent could do
    commands = next(int(it[15:], 16) for it in process["args"] if it.startswith("--capabilities="))
    sys_admin, mknod, net_raw, sys_ptrace = 21, 27, 13, 19
    for number in (sys_admin, mknod, net_raw, sys_ptrace):
        assert not commands >> number & 1


def test_what_is_bound_cannot_be_written() -> None:
    mounts = [it for it in told()["mounts"] if it["type"] == "bind"]
    assert [it["destination"] for it in mounts] == ["/sys"]
    assert all({"ro", "nosuid", "nodev", "noexec"} <= set(it["options"]) for it in mounts)


def test_programs_find_cgroup_limits_where_they_look() -> None:
    assert not any(it["type"] == "cgroup" for it in told()["mounts"])
    (view,) = (it for it in told(cgroup_view=True)["mounts"] if it["type"] == "cgroup")
    assert "ro" in view["options"]


def test_ioctls_are_compared_by_what_the_kernel_reads() -> None:
    rules: Any = seccomp.profile()["syscalls"]
    refused = [rule["args"][0] for rule in rules if rule["names"] == ["ioctl"]]
    assert {it["valueTwo"] for it in refused} >= set(seccomp.IOCTLS.values())
    assert all((it["op"], it["value"]) == ("SCMP_CMP_MASKED_EQ", 0xFFFFFFFF) for it in refused)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a b", "a.b", "x" * 65, "ä"])
def test_ids_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        Places(tmp_path).sandbox(name)


def test_limits_are_filled() -> None:
    settings = ContainerSettings(memory_bytes=1 << 30, pids=5)
    filled = settings.filled(Limits(memory_bytes=1 << 25, io_weight=7))
    assert (filled.memory_bytes, filled.pids, filled.io_weight) == (1 << 25, 5, 7)
    assert filled.cpu_cores is None
