"""What fuzzing shares: how many inputs, and what must hold for each of them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from hypothesis import HealthCheck, settings

from dsec_layers.errors import DsecError

# Of processor time. An input is a few kilobytes: what takes so long takes time that explodes.
LIMIT_S = 20


class Hang(BaseException):
    """An input took too long. No Exception, so that nothing on the way takes it for a failure."""


def times(count: int) -> settings:
    """So many times the inputs of the profile. All that is in tests/fuzz adds up to 20."""
    return settings(
        max_examples=settings().max_examples * count,
        suppress_health_check=list(HealthCheck),
    )


def refusal(read: Callable[[], object], *kinds: type[Exception]) -> Exception | None:
    """The error of one of these kinds that a call ends with."""
    try:
        read()
    except kinds as error:
        return error
    return None


@contextlib.contextmanager
def only_errors_of_ours() -> Iterator[None]:
    """The block succeeds or raises a DsecError, and in time."""

    def alarm(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, alarm)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        with contextlib.suppress(DsecError):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
