"""Ending the daemon while the kernel lets go of what was mounted."""

from pathlib import Path

import pytest

from dsec_layers.api import mounting
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import BusyError


class Machine:
    """A daemon that is free after so many refusals, and what is mounted meanwhile."""

    def __init__(self, refusals: int, mounts: tuple[str, ...] = ()) -> None:
        self.refusals = refusals
        self.mounts = mounts
        self.swept = 0
        self.now = 0.0

    def reconcile(self) -> None:
        self.swept += 1

    def list(self) -> tuple[str, ...]:
        return self.mounts

    def stop(self, *, force: bool) -> bool:
        if self.refusals and not force:
            self.refusals -= 1
            raise BusyError("the daemon serves a layer")
        return True

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(*request.param)
    monkeypatch.setattr(mounting, "manager", lambda _: made)
    monkeypatch.setattr(mounting, "client", lambda _: made)
    monkeypatch.setattr("dsec_layers.api.mounting.time.monotonic", lambda: made.now)
    monkeypatch.setattr("dsec_layers.api.mounting.time.sleep", made.sleep)
    return made


@pytest.mark.parametrize("machine", [(2,)], indirect=True)
def test_the_last_files_are_waited_for(machine: Machine) -> None:
    assert mounting.stop_daemon(Workbench(Path("/nowhere")))
    assert machine.swept == 3


@pytest.mark.parametrize("machine", [(1, ("mounted",)), (1_000_000,)], indirect=True)
def test_a_mount_is_not_waited_for_nor_anything_for_ever(machine: Machine) -> None:
    with pytest.raises(BusyError):
        mounting.stop_daemon(Workbench(Path("/nowhere")))
    assert (machine.swept == 1) == bool(machine.mounts)
    assert machine.now < 5
    assert mounting.stop_daemon(Workbench(Path("/nowhere")), force=True)
