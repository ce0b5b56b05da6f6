"""Another runtime than the first choice makes the same sandboxes, in groups of our making."""

from __future__ import annotations

import base64
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_runtime.errors import UnsupportedError
from dsec_runtime.linux import ociruntime
from dsec_runtime.spec import EndCause
from dsec_runtime.tiers.container.driver import ContainerTier
from tests.support import sandboxes as support
from tests.support.sandboxes import LIMITS, Box, Sandboxes

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay, pytest.mark.oci,
]  # fmt: skip


@pytest.fixture(scope="module", params=["crun", "runc"])
def boxes(request: pytest.FixtureRequest) -> Iterator[Sandboxes]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    with support.home() as home, support.opened(home, runtime=request.param) as made:
        yield made


def test_a_life(boxes: Sandboxes) -> None:
    box = boxes.create()
    assert box.ok("id -u; nproc; hostname").split() == ["0", "1", "sandbox"]
    box.ok("sleep 1000 & echo text > /file")
    boxes.tier.pause(box.running)
    boxes.tier.resume(box.running)
    (fork,) = boxes.fork(box, 1)
    assert fork.ok("cat /file") == "text\n"
    for each in (box, fork):
        boxes.tier.destroy(each.id)
        assert boxes.left(each.id) == []


def test_limits(boxes: Sandboxes) -> None:
    box = boxes.create()
    assert box.run("tail", "/dev/zero").end.cause is EndCause.SIGNALLED
    assert box.tier.usage(box.running).oom_kills >= 1
    box.run("perl", "-e", "fork while 1", timeout_s=1)
    assert box.tier.usage(box.running).pids <= (LIMITS.pids or 0)


def test_the_agent_is_out_of_reach(boxes: Sandboxes) -> None:
    box: Box = boxes.create()
    assert box.sh("cat /proc/1/environ /proc/1/maps; ls /proc/1/fd").stdout == ""
    assert box.syscall(101, "16, 1, 0, 0") != 0
    assert box.ok("grep Seccomp: /proc/self/status").split()[1] == "2"


def test_a_filter_that_was_compiled_once_is_that_of_all(boxes: Sandboxes) -> None:
    first = boxes.create()
    given = boxes.node.filter.annotations
    if Path(boxes.node.runtime.program).name != "crun":
        assert given == {}  # it compiles for itself
        return
    second = boxes.create()
    state = boxes.node.places.runtime
    filters = [(state / it.id / "seccomp.bpf").read_bytes() for it in (first, second)]
    (encoded,) = given.values()
    assert filters == [base64.b64decode(encoded)] * 2
    for box in (first, second):
        assert box.syscall(248, "0, 0, 0, 0, 0") == errno.EPERM  # add_key, else EFAULT


def test_no_container_can_write_to_the_runtime_that_starts_it(boxes: Sandboxes) -> None:
    """So it need not copy itself, and run a second time, whenever it starts one."""
    seals = []
    name = boxes.new_id()

    def look(step: str) -> None:
        if step == "entered":
            (pid,) = boxes.node.groups.processes(name)
            program = os.open(f"/proc/{pid}/exe", os.O_RDONLY)
            seals.append(fcntl.fcntl(program, fcntl.F_GET_SEALS))
            os.close(program)

    ContainerTier(boxes.node, trace=look).create(name, boxes.spec())
    everything = ("SEAL", "SHRINK", "GROW", "WRITE")
    assert seals == [sum(getattr(fcntl, f"F_SEAL_{each}") for each in everything)]


def test_one_that_is_not_there_is_named() -> None:
    with pytest.raises(UnsupportedError, match="none-such"):
        ociruntime.find("none-such")
