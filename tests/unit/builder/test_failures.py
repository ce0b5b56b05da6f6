from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dsec_layers.builder.failures import command_failed, explained
from dsec_layers.builder.steps import RunStep
from dsec_layers.errors import BuildError, BusyError, DsecError, InvalidInputError, NoSpaceError
from dsec_layers.linux.container import Finished

STEP = RunStep("L:4", "RUN a", ("a",), {}, {}, cwd="/", user="0", network="host")


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (InvalidInputError("bad", hint="h"), InvalidInputError, "L:4: step 1/2 RUN a: bad"),
        (BusyError("busy", hint="h"), BusyError, "L:4: step 1/2 RUN a: busy"),
        (OSError(errno.EIO, "broken"), BuildError, r"L:4: step 1/2 RUN a: .*broken"),
        (OSError(errno.ENOSPC, "full"), NoSpaceError, r"L:4: step 1/2 RUN a: .*full"),
        (OSError(errno.EDQUOT, "full"), NoSpaceError, r"L:4: step 1/2 RUN a: .*full"),
        (BuildError("as it is", hint="h"), BuildError, "^as it is$"),
    ],
)
def test_the_step_stands_in_front(
    raised: Exception, expected: type[DsecError], message: str
) -> None:
    with pytest.raises(expected, match=message) as caught, explained(STEP, "step 1/2"):
        raise raised
    assert not isinstance(raised, DsecError) or caught.value.hint == "h"


def test_an_interrupt_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt), explained(STEP, "step 1/2"):
        raise KeyboardInterrupt
    with pytest.raises(InterruptedError), explained(STEP, "step 1/2"):
        raise InterruptedError


def test_a_failed_command_says_how_and_what_it_said_last(tmp_path: Path) -> None:
    tail = "".join(f"line {number}\n" for number in range(30)).encode() + b"\xff\n"
    error = command_failed(STEP, "step 1/2", Finished(2, tail), tmp_path)
    lines = error.message.splitlines()
    assert lines[0] == "L:4: step 1/2 failed with status 2: RUN a"
    assert lines[1:] == [*(f"    line {number}" for number in range(21, 30)), "    \ufffd"]
    assert error.hint is None
    killed = command_failed(STEP, "step 1/2", Finished(137, b""), tmp_path)
    assert killed.message == "L:4: step 1/2 was killed by signal 9: RUN a"
    full = command_failed(STEP, "s", Finished(1, b"x: No space left on device\n"), tmp_path)
    assert "no space is left" in (full.hint or "")
