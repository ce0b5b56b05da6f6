"""The life of a container: made, used, found again, and gone without a trace."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsec_layers.api import catalog, holding
from dsec_layers.api.managing import manager
from dsec_layers.linux import mount
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.reference import Reference
from dsec_runtime.errors import (
    InvalidRequestError,
    StateConflictError,
    UnknownSandboxError,
    UnsupportedError,
)
from dsec_runtime.linux import namespaces, overlays
from dsec_runtime.resources import layout
from dsec_runtime.spec import CpuClass, Environment, Limits, SandboxSpec
from dsec_runtime.tiers.container.driver import ContainerTier
from tests.support.leftovers import settle
from tests.support.sandboxes import BASE, Box, Sandboxes, alive, open_node

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay, pytest.mark.oci,
]  # fmt: skip


def test_a_command_runs_as_root_of_its_own_world(box: Box) -> None:
    assert box.ok("id -u; hostname; cat /etc/passwd | head -1").split() == [
        "0", "sandbox", "root:x:0:0:root:/root:/bin/sh",
    ]  # fmt: skip


def test_it_is_nobody_on_the_node(box: Box) -> None:
    box.ok("touch /made")
    assert (box.folder / "root/made").stat().st_uid == int(box.running.own["first_id"])
    assert (box.folder / "disk/upper/made").stat().st_uid == 0


def test_a_kernel_that_must_see_what_an_overlay_is_made_of(
    boxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlays, "_takes_detached", lambda: False)  # as before 6.15
    box = boxes.create()
    assert box.ok("echo new > /root/new; cat /root/new; stat -c %u /root/new") == "new\n0\n"
    assert (box.folder / "disk/upper/root/new").stat().st_uid == 0


def test_owners_modes_and_setuid_are_those_of_the_environment(box: Box) -> None:
    ran = box.run("sh", "-c", "id -u; touch /tmp/x; stat -c %u /tmp/x /root", user="user")
    assert ran.stdout.split() == ["1000", "1000", "0"]
    assert box.run("sh", "-c", "ls /root", user="user").status != 0


def test_what_one_writes_the_other_does_not_see(boxes: Sandboxes) -> None:
    first, second = boxes.create(), boxes.create()
    first.ok("echo mine > /etc/passwd; rm -r /root")
    assert "root:x" in second.ok("cat /etc/passwd; ls -d /root")
    assert first.running.own["first_id"] != second.running.own["first_id"]


def test_layers_are_mounted_once(boxes: Sandboxes) -> None:
    first, second = boxes.create(), boxes.create()
    assert first.running.digests == second.running.digests
    mounted = list((boxes.home / "run/layers").glob("*/bin"))
    assert len(mounted) == 1


def test_the_limits_are_seen_inside(boxes: Sandboxes) -> None:
    box = boxes.create()
    assert box.ok("nproc").strip() == "1"
    assert box.ok("grep -c ^processor /proc/cpuinfo").strip() == "1"
    assert box.ok("cat /sys/devices/system/cpu/online").strip() == "0"
    assert box.ok("grep MemTotal /proc/meminfo").split()[1] == str(96 * 1024)
    blocks = int(box.ok("df -k / | tail -1 | tr -s ' ' | cut -d' ' -f2"))
    assert 48 * 1024 < blocks <= 64 * 1024


def test_free_memory_follows_the_use(box: Box) -> None:
    def free() -> int:
        box.tier.usage(box.running)
        return int(box.ok("grep MemFree /proc/meminfo").split()[1])

    before = free()
    box.ok("head -c 32000000 /dev/zero > /dev/shm/x")
    assert before - free() > 20_000


def test_best_effort_is_idle(boxes: Sandboxes) -> None:
    box = boxes.create(boxes.spec(cpu_class=CpuClass.BE))
    assert box.ok("echo here") == "here\n"


def test_environment_user_and_folder_are_told(boxes: Sandboxes) -> None:
    box = boxes.create(boxes.spec(env={"A": "b"}, workdir="/tmp", user="user"))
    assert (box.running.env, box.running.workdir, box.running.user) == ({"A": "b"}, "/tmp", "user")


def test_the_same_id_twice_is_a_conflict(boxes: Sandboxes, box: Box) -> None:
    with pytest.raises(StateConflictError):
        boxes.tier.create(box.id, boxes.spec())
    assert box.ok("echo here") == "here\n"


@pytest.mark.parametrize("name", ["", "..", "a/b", ".ids", "x" * 65])
def test_an_id_is_a_name(boxes: Sandboxes, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        boxes.tier.create(name, boxes.spec())


def test_what_cannot_be_made_leaves_nothing(boxes: Sandboxes) -> None:
    name = boxes.new_id()
    with pytest.raises(UnknownSandboxError):
        boxes.tier.create(name, SandboxSpec(environment=Environment(reference="base/none:1")))
    with pytest.raises(InvalidRequestError):
        boxes.tier.create(name, SandboxSpec(environment=Environment()))
    assert boxes.left(name) == []


def test_what_the_node_lacks_is_refused_by_name(boxes: Sandboxes) -> None:
    if any(Path("/sys/fs/cgroup/blkio").glob("*weight")):
        pytest.skip("this node weighs I/O")
    name = boxes.new_id()
    with pytest.raises(UnsupportedError, match="weigh I/O"):
        boxes.tier.create(name, boxes.spec(Limits(io_weight=10)))
    assert boxes.left(name) == []


def test_destroying_leaves_nothing_and_may_be_repeated(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("sleep 1000 & echo")
    pid = box.running.pid
    for _ in range(2):
        boxes.tier.destroy(box.id)
        assert boxes.left(box.id) == []
    assert not alive(pid)
    assert not boxes.tier.reattach(box.running)


def test_another_process_finds_it_again(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("echo kept > /file")
    running = msgspec.json.decode(msgspec.json.encode(box.running), type=type(box.running))
    node = open_node(boxes.home)
    try:
        successor = ContainerTier(node)
        assert successor.reattach(running)
        assert box.id in successor.leftovers(frozenset())
        assert box.id not in successor.leftovers(frozenset([box.id]))
        assert Box(successor, running).ok("cat /file") == "kept\n"
        successor.destroy(box.id)
        assert box.id not in successor.leftovers(frozenset())
    finally:
        node.close()


def test_several_layers(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("mkdir /made; echo w > /made/file; rm /etc/group")
    boxes.tier.snapshot(box.running, "workspace/made:1")
    spec = SandboxSpec(environment=Environment(layers=(BASE, "workspace/made:1")))
    stacked = boxes.create(spec)
    assert stacked.ok("cat /made/file; ls /etc") == "w\nhosts\npasswd\nresolv.conf\n"
    assert len(stacked.running.digests) == 2


def test_an_image_that_is_here_is_an_environment(boxes: Sandboxes) -> None:
    bench = boxes.node.bench
    name = ImageName.parse("registry.example/some/image:1")
    catalog.tag(bench.local, Reference.parse(BASE), name.base)
    box = boxes.create(boxes.spec(environment=Environment(image="registry.example/some/image:1")))
    assert box.ok("echo here") == "here\n"


def test_layers_that_nobody_uses_are_released(boxes: Sandboxes) -> None:
    first = boxes.create()
    boxes.tier.snapshot(first.running, "toolkit/rare:1")
    box = boxes.create(boxes.spec(environment=Environment(layers=(BASE, "toolkit/rare:1"))))
    folders = [
        boxes.home / "run/layers" / digest.partition(":")[2] for digest in box.running.digests
    ]
    boxes.tier.destroy(box.id)
    assert all(mount.mounted_at(folder) for folder in folders)  # the next one finds them
    boxes.node.environments.close()
    assert [mount.mounted_at(folder) is None for folder in folders] == [False, True]
    boxes.tier.destroy(first.id)
    boxes.node.environments.close()
    assert mount.mounted_at(folders[0]) is None
    settle(manager(boxes.node.bench), boxes.home)


def test_it_enters_a_network_that_was_made_for_it(boxes: Sandboxes, tmp_path: Path) -> None:
    network = tmp_path / "network"
    namespaces.in_new_network(network, lambda: None)
    try:
        tier = ContainerTier(boxes.node, network=lambda _name, _spec: network)
        box = Box(tier, tier.create(boxes.new_id(), boxes.spec()))
        inside = Path(f"/proc/{box.running.pid}/ns/net").stat().st_ino
        assert inside == network.stat().st_ino
        assert box.ok("cat /proc/net/dev | grep -c lo").strip() == "1"
    finally:
        namespaces.forget(network)


def test_groups_that_somebody_made_in_it_go_with_it(boxes: Sandboxes) -> None:
    box = boxes.create()
    found = layout.find()
    points = [*found.v1.values(), *([found.v2] if found.v2 else [])]
    made = [point / "dsec" / box.id / "one" / "two" for point in points]
    for group in made:
        if group.parents[1].is_dir():
            group.mkdir(parents=True)
    boxes.tier.destroy(box.id)
    assert boxes.left(box.id) == []


def test_localhost_has_a_name(boxes: Sandboxes) -> None:
    box = boxes.create(boxes.spec(hostname="here"))
    assert box.ok("grep -c 127.0.0.1.localhost /etc/hosts; grep -c here /etc/hosts").split() == [
        "1", "1",
    ]  # fmt: skip


def test_names_of_the_environment_are_left_alone(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("echo 127.0.0.1 localhost own > /hosts")
    upper = box.folder / "disk/upper"
    (upper / "etc").mkdir()
    (upper / "etc/hosts").symlink_to("/hosts")
    boxes.tier.snapshot(box.running, "toolkit/names:1")
    spec = boxes.spec(environment=Environment(layers=(BASE, "toolkit/names:1")))
    assert boxes.create(spec).ok("cat /etc/hosts") == "127.0.0.1 localhost own\n"


def test_layers_that_others_hold_are_left_to_them(boxes: Sandboxes) -> None:
    bench = boxes.node.bench
    holding.hold(bench, holding.pinned(bench, [Reference.parse(BASE)]), "somebody")
    try:
        open_node(boxes.home).close()
        assert "somebody" in holding.holders(bench)
    finally:
        holding.release(bench, "somebody")
