"""Builds that are interrupted, killed, or fill the disk: nothing half done or running stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import BuildError, NoSpaceError
from dsec_layers.linux import mount
from tests.support.builds import Workshop

pytestmark = [pytest.mark.root, pytest.mark.oci]

PROGRAM = "tests.support.build_process"
# A number of our own, so that tests at the same time do not see each other's processes.
SLEEP = f"sleep {1_000_000 + os.getpid()}"
MOUNTS = (
    "--mount=type=cache,id=c,target=/c,sharing=locked --mount=type=tmpfs,target=/t "
    "--mount=target=/context --mount=from=base/small,target=/m,rw"
)
ENDLESS = (
    "FROM base/small\nRUN echo done > /first\n"
    f"RUN {MOUNTS} {SLEEP} & echo > /half; echo > /c/x; echo running; {SLEEP}\n"
)


@pytest.fixture
def running(workshop: Workshop, base_folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A build that has come to its endless command."""
    request = workshop.request(ENDLESS)
    words = (request.layerfile, request.context, request.home, base_folder)
    child = subprocess.Popen(
        [sys.executable, "-m", PROGRAM, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        yield child
    finally:
        child.kill()
        child.communicate()
        workshop.build("FROM scratch\n")  # sweeps what a killed build left


def processes_in(workshop: Workshop) -> list[str]:
    """Processes of the build's command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if SLEEP.replace(" ", "\0").encode() in words or os.fsencode(workshop.home) in words:
            found.append(words.decode())
    return [words for words in found if PROGRAM not in words]


def mounts_in(workshop: Workshop) -> list[str]:
    targets = [point.target for point in mount.mount_points()]
    return [target for target in targets if target.startswith(str(workshop.folder))]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing(
    workshop: Workshop, running: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert processes_in(workshop)
    assert mounts_in(workshop)
    running.send_signal(number)
    _, errors = running.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert processes_in(workshop) == []
    assert mounts_in(workshop) == []
    assert workshop.leftovers() == []
    again = workshop.build(ENDLESS.replace(SLEEP, "true"))
    assert again.cached == [True, False]


def test_a_killed_build_is_swept_by_the_next(
    workshop: Workshop, running: subprocess.Popen[str]
) -> None:
    running.kill()
    running.communicate(timeout=60)
    left = workshop.leftovers()
    assert left
    again = workshop.build(ENDLESS.replace(SLEEP, "true"))
    assert again.cached == [True, False]
    assert mounts_in(workshop) == []
    assert workshop.leftovers() == []


@pytest.fixture
def small_disk(workshop: Workshop) -> Iterator[Workshop]:
    """A workshop whose step cache has 2 MiB."""
    workshop.home.mkdir()
    mount.mount_tmpfs(workshop.home, options="mode=0755,size=2m")
    yield workshop
    assert workshop.leftovers() == []
    mount.unmount(workshop.home)


def test_a_command_that_fills_the_disk(small_disk: Workshop) -> None:
    text = "FROM base/small\nRUN echo > /first\nRUN cat /dev/zero > /big\n"
    with pytest.raises(BuildError, match="step 2/2 failed") as caught:
        small_disk.build(text)
    assert "No space left on device" in caught.value.message
    assert "no space is left" in (caught.value.hint or "")
    assert small_disk.build(text.replace("/dev/zero", "/first")).cached == [True, False]


def test_a_copy_that_fills_the_disk(small_disk: Workshop) -> None:
    small_disk.write("big", "x" * (4 << 20))
    with pytest.raises(NoSpaceError, match=r"Layerfile:3: step 1/1 COPY big /"):
        small_disk.build("FROM base/small\nCOPY big /\n")
    (small_disk.context / "big").write_text("small")
    assert small_disk.build("FROM base/small\nCOPY big /\n").files["big"] == b"small"
