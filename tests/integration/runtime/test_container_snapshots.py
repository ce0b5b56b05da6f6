"""What a container wrote becomes a layer, or the beginning of others."""

from __future__ import annotations

import threading

import pytest

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.spec import MIB, Environment, Limits
from tests.support.sandboxes import BASE, Sandboxes

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay, pytest.mark.oci,
]  # fmt: skip

_CHANGES = "mkdir /w; rm /etc/group; ln -s file /w/link; chmod 4755 /bin/id"


def test_a_snapshot_starts_as_it_was(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok(f"{_CHANGES}; echo text > /w/file; touch /w/mine")
    box.run("touch", "/tmp/of-user", user="user")
    digest = boxes.tier.snapshot(box.running, "workspace/shot:1")
    box.ok("echo later > /w/file")
    environment = Environment(layers=(BASE, "workspace/shot:1"))
    again = boxes.create(boxes.spec(environment=environment))
    assert again.running.digests == (*box.running.digests, digest)
    assert again.ok("cat /w/link; stat -c '%u %a' /bin/id /w /w/mine; ls /etc").split() == [
        *("text", "0", "4755", "0", "755", "0", "644", "hosts", "passwd", "resolv.conf"),
    ]


def test_what_the_platform_mounts_on_is_no_part_of_a_snapshot(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("echo text > /file")
    assert sorted(path.name for path in (box.folder / "disk/upper").rglob("*")) == ["file"]


def test_a_sandbox_that_writes_all_the_time_stands_still_for_it(boxes: Sandboxes) -> None:
    box = boxes.create()
    writing = "(while :; do echo >> /busy; done) >/dev/null 2>&1 &"
    box.ok(f"{writing} until test -s /busy; do :; done")
    boxes.tier.snapshot(box.running, "toolkit/busy:1")
    size = int(box.ok("stat -c %s /busy"))
    box.ok(f"while test $(stat -c %s /busy) -le {size}; do :; done")


def test_a_snapshot_of_a_paused_one_leaves_it_paused(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("echo text > /file")
    boxes.tier.pause(box.running)
    boxes.tier.snapshot(box.running, "workspace/paused:1")
    assert boxes.node.groups.frozen(box.id)
    boxes.tier.resume(box.running)


def test_forks_begin_with_the_files_and_go_their_own_ways(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok(f"{_CHANGES}; echo before > /w/file; head -c 1000000 /dev/urandom > /w/data")
    first, second = boxes.fork(box, 2)
    data = box.ok("cat /w/data | wc -c; ls -l /w /etc")
    for fork in (first, second):
        assert fork.ok("cat /w/data | wc -c; ls -l /w /etc") == data
        assert fork.ok("cat /w/link") == "before\n"
    first.ok("echo first > /w/file")
    box.ok("echo parent > /w/file")
    assert [each.ok("cat /w/file") for each in (box, first, second)] == [
        "parent\n", "first\n", "before\n",
    ]  # fmt: skip
    assert len({each.running.own["first_id"] for each in (box, first, second)}) == 3


def test_a_fork_of_a_fork(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("rm -r /tmp; mkdir /tmp; echo 1 > /tmp/1")
    (child,) = boxes.fork(box, 1)
    child.ok("echo 2 > /tmp/2; rm /tmp/1")
    (grandchild,) = boxes.fork(child, 1)
    boxes.tier.destroy(box.id)
    boxes.tier.destroy(child.id)
    assert grandchild.ok("cat /tmp/*; ls /tmp") == "2\n2\n"


def test_a_fork_outlives_its_tag(boxes: Sandboxes) -> None:
    box = boxes.create()
    box.ok("echo a > /a")
    boxes.tier.snapshot(box.running, "toolkit/moving:1")
    environment = Environment(layers=(BASE, "toolkit/moving:1"))
    child = boxes.create(boxes.spec(environment=environment))
    box.ok("echo b > /a")
    boxes.tier.snapshot(box.running, "toolkit/moving:1")
    (fork,) = boxes.fork(child, 1)
    assert fork.ok("cat /a") == "a\n"
    assert boxes.create(boxes.spec(environment=environment)).ok("cat /a") == "b\n"


def test_a_fork_with_another_disk_is_refused(boxes: Sandboxes) -> None:
    box = boxes.create()
    name = boxes.new_id()
    with pytest.raises(InvalidRequestError, match="size"):
        boxes.tier.fork(box.running, {name: boxes.spec(Limits(disk_bytes=128 * MIB))})
    assert boxes.left(name) == []
    assert box.ok("echo here") == "here\n"


def test_many_at_once(boxes: Sandboxes) -> None:
    """Threads make, use and destroy sandboxes side by side."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(4):
                box = boxes.create()
                assert box.ok("echo here") == "here\n"
                boxes.tier.destroy(box.id)
        except BaseException as error:  # told below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
