"""Answers of an agent as values and errors."""

from __future__ import annotations

import errno

import pytest

from dsec_runtime import errors
from dsec_runtime.channel import frames, replies
from dsec_runtime.channel.frames import Tag, Value
from dsec_runtime.spec import EndCause


def fields(*given: tuple[int, Value]) -> frames.Fields:
    return frames.fields_of(frames.encode_fields(given))


def test_an_end_has_all_that_was_counted() -> None:
    end = replies.end_of(
        fields(
            *((Tag.CAUSE, 3), (Tag.STATUS, 137), (Tag.SIGNAL, 9), (Tag.PEAK, 4096)),
            *((Tag.STDOUT_OFFSET, 10), (Tag.STDERR_OFFSET, 2)),
            *((Tag.WALL_US, 1_500_000), (Tag.CPU_US, 250_000)),
        )
    )
    assert (end.cause, end.status, end.signal) == (EndCause.TIMEOUT, 137, 9)
    assert (end.stdout_bytes, end.stderr_bytes, end.peak_bytes) == (10, 2, 4096)
    assert (end.wall_s, end.cpu_s) == (1.5, 0.25)


@pytest.mark.parametrize(
    ("stage", "number", "path", "kind"),
    [
        ("exec", errno.ENOENT, None, errors.CommandFailedError),
        ("start", errno.EAGAIN, None, errors.OverloadedError),
        ("start", errno.EEXIST, None, errors.StateConflictError),
        ("attach", errno.ESRCH, None, errors.UnknownSandboxError),
        ("worker", errno.ENOSYS, "/x", errors.UnsupportedError),
        ("file", errno.ENOENT, "/x", errors.FileError),
        ("file", errno.ENOSPC, "/x", errors.DiskQuotaError),
        ("file", errno.EDQUOT, "/x", errors.DiskQuotaError),
    ],
)
def test_errors_have_their_class(
    stage: str, number: int, path: str | None, kind: type[errors.SandboxError]
) -> None:
    error = replies.error_of(fields((Tag.ERRNO, number), (Tag.STAGE, stage)), path=path)
    assert type(error) is kind
