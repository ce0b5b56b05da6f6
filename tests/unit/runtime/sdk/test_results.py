"""Ends of commands as errors, and output that is given once."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime import errors, wire
from dsec_runtime.sdk.output import Position
from dsec_runtime.sdk.results import finished, not_started
from dsec_runtime.spec import EndCause, ExecEnd, ExecSpec, Problem

SPEC = ExecSpec(argv=("make", "all"), timeout_s=5.0, output_limit_bytes=100)


@pytest.mark.parametrize(
    ("end", "error", "detail"),
    [
        (ExecEnd(cause=EndCause.EXITED, status=2), errors.CommandFailedError, {"status": 2}),
        (
            ExecEnd(cause=EndCause.SIGNALLED, status=139, signal=11),
            errors.CommandFailedError,
            {"signal": 11},
        ),
        (ExecEnd(cause=EndCause.KILLED, status=137, signal=9), errors.CommandFailedError, {}),
        (
            ExecEnd(cause=EndCause.TIMEOUT, status=137, signal=9),
            errors.CommandTimeoutError,
            {"timeout_s": 5.0},
        ),
        (
            ExecEnd(cause=EndCause.OUTPUT_LIMIT, status=137),
            errors.OutputLimitError,
            {"limit_bytes": 100},
        ),
        (
            ExecEnd(cause=EndCause.OUT_OF_MEMORY, status=1, oom_process="ld", oom_limit_bytes=4096),
            errors.OutOfMemoryError,
            {"process": "ld", "limit_bytes": 4096},
        ),
        (
            ExecEnd(cause=EndCause.EXITED, status=2, oom_process="cc1", oom_limit_bytes=4096),
            errors.OutOfMemoryError,
            {"process": "cc1", "limit_bytes": 4096, "status": 2},
        ),
        (ExecEnd(cause=EndCause.LOST, status=1), errors.LostError, {}),
    ],
)
def test_each_end_has_its_error(
    end: ExecEnd, error: type[errors.SandboxError], detail: dict[str, object]
) -> None:
    result = finished("x", SPEC, end, b"out", b"first\nlast words\n")
    assert not result.ok
    with pytest.raises(error) as raised:
        result.check()
    assert type(raised.value) is error
    assert detail.items() <= raised.value.detail.items()
    assert (error is errors.LostError) != isinstance(raised.value, errors.AgentError)


def test_a_good_end_is_none() -> None:
    result = finished("x", SPEC, ExecEnd(cause=EndCause.EXITED, status=0), b"\xff", b"")
    assert result.check() is result
    assert (result.ok, result.exit_code, result.text) == (True, 0, "\ufffd")


@pytest.mark.parametrize(("number", "status"), [(2, 127), (13, 126)])
def test_a_program_that_cannot_run_ends_as_in_a_shell(number: int, status: int) -> None:
    error = errors.CommandFailedError("no such program", detail={"errno": number})
    result = not_started("x", error)
    assert (result.exit_code, result.stderr) == (status, b"no such program\n")
    with pytest.raises(errors.CommandFailedError):
        result.check()


@pytest.mark.parametrize("error", errors.BY_CODE.values())
def test_errors_come_back_as_they_were(error: type[errors.SandboxError]) -> None:
    told = Problem(code=error.code, message="m", hint="h", detail={"a": 1})
    position = Position()
    with pytest.raises(error) as raised:
        position.take(wire.parse(wire.frame(wire.Kind.PROBLEM, msgspec.json.encode(told))))
    assert type(raised.value) is error
    assert (raised.value.message, raised.value.hint, raised.value.detail) == ("m", "h", {"a": 1})


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))))
def test_bytes_that_come_twice_are_given_once(data: bytes, pieces: list[tuple[int, int]]) -> None:
    """Frames from connection after connection overlap; each byte is given once and in order."""
    position, got = Position(), bytearray()
    for start, length in [*pieces, (0, len(data))]:
        begin = min(start, len(got), len(data))  # an edge never skips what it still has
        frame = wire.frame(wire.Kind.STDOUT, data[begin : begin + length], begin)
        piece = position.take(wire.parse(frame))
        if piece is not None:
            assert piece.offset == len(got)
            got += piece.data
    assert bytes(got) == data


def test_a_gap_is_told() -> None:
    position = Position(stdout=3)
    assert position.query == {"stdout": 3, "stderr": 0}
    piece = position.take(wire.parse(wire.frame(wire.Kind.STDOUT, b"xyz", 10)))
    assert piece is not None
    assert piece.offset == 10
    assert position.query["stdout"] == 13
