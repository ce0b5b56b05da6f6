"""What all tests share: capability markers, hypothesis profiles, a check that no mount is left."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from dsec_layers.linux import mount
from dsec_layers.linux import syscalls as layer_syscalls
from dsec_layers.linux.capabilities import Capability, missing
from dsec_runtime.linux import namespaces, syscalls
from tests.support import machines

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=150, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=5000, deadline=None)

_IN_CI = os.environ.get("CI") == "true"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if _IN_CI else "dev"))


def pytest_configure() -> None:
    """Let programs of tests be interrupted, also where a shell began us in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if os.environ.get("PYTEST_XDIST_WORKER") and os.geteuid() == 0:
        _see_no_others()


def _see_no_others() -> None:
    """A worker has its mounts for itself.

    Whatever makes a mount namespace copies all mounts it sees, and keeps what they show alive; it
    would keep layers alive of which a test next to it says that they are gone.
    """
    namespaces.unshare(syscalls.CLONE_NEWNS)
    layer_syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marker names something that this machine lacks; in CI that is a failure."""
    for capability in Capability:
        if item.get_closest_marker(capability.value) is None:
            continue
        if error := missing(capability):
            reason = f"needs {capability.value}: {error.message} ({error.hint})"
            _lacks(reason)
    if item.get_closest_marker("vm") and (lack := machines.missing()):
        _lacks(f"needs vm: {lack}")
    for marker in item.iter_markers("peers"):
        if absent := [name for name in marker.args if shutil.which(name) is None]:
            _lacks(f"needs {', '.join(absent)} (see packages.txt)")


def _lacks(reason: str) -> None:
    pytest.fail(reason, pytrace=False) if _IN_CI else pytest.skip(reason)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop of tests that are coroutines: the edge's own."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session", autouse=True)
def no_mount_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail the run when it leaves a mount below its temporary folders.

    Other folders belong to other processes of the machine and are not looked at. What is found is
    unmounted.
    """
    base = tmp_path_factory.getbasetemp().resolve()
    yield
    left = [found for found in mount.mount_points() if Path(found.target).is_relative_to(base)]
    for found in reversed(left):
        mount.unmount(Path(found.target), lazy=True)
    assert not left, (
        f"mounts left by the tests: {[(found.filesystem, found.target) for found in left]}"
    )
