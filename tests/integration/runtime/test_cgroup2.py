"""What needs cgroup v2, or root with all capabilities: the tests of tests/guest, in a guest.

One virtual machine is booted for all of them; each file is a test here.
"""

from __future__ import annotations

import compileall
import re
import sys

import pytest

from tests.support import machines, sandboxes

pytestmark = [pytest.mark.vm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(1000)]

FILES = sorted(path.name for path in (machines.ROOT / "tests/guest").glob("test_*.py"))
# Every module counts: an emulated processor takes seconds to load hypothesis.
_OPTIONS = ("-q", "-rA", "--timeout=600", "-pno:cacheprovider")
_LEAN = ("--noconftest", *(f"-pno:{name}" for name in ("hypothesispytest", "xdist")))
_OUTCOME = re.compile(
    r"^(PASSED|FAILED|ERROR|SKIPPED) (?:\[1\] )?tests/guest/(\w+\.py)", re.MULTILINE
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> machines.Ran:
    """What pytest tells of them. It can write no caches there, so modules are compiled here."""
    sandboxes.agent()
    for package in ("dsec_layers", "dsec_runtime", "tests/support"):
        compileall.compile_dir(machines.ROOT / package, quiet=1)
    return machines.run(
        [sys.executable, "-m", "pytest", *_OPTIONS, *_LEAN, "tests/guest"],
        tmp_path_factory.mktemp("machine"),
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
    )


@pytest.mark.parametrize("file", FILES)
def test_in_a_guest(ran: machines.Ran, file: str) -> None:
    outcomes = {outcome for outcome, of in _OUTCOME.findall(ran.output) if of == file}
    assert outcomes == {"PASSED"}, ran.output
