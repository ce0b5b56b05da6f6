"""What a Dockerfile says of containers that are started later: ports, signals, health.

Source: the Dockerfile reference. Errors are ValueError: only the caller knows the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dsec_layers.model.runconfig import Healthcheck

HEALTH_FLAGS: Final = frozenset(
    {"interval", "timeout", "start-period", "start-interval", "retries"}
)
_PORT: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp|sctp))?", re.IGNORECASE)
_SIGNAL: Final = re.compile(r"[0-9]{1,2}|(SIG)?[A-Z][A-Z0-9]*([+-][0-9]{1,2})?", re.IGNORECASE)
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+|0")
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS_NS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LONGEST_NS: Final = 2**63 - 1


def ports(words: Iterable[str]) -> Iterator[str]:
    """Every port of `80`, `80/udp` and `80-90/tcp`, as `NUMBER/PROTOCOL`, once or more often."""
    for word in dict.fromkeys(words):
        match = _PORT.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if match is None or not 0 < first <= last < 1 << 16:
            raise ValueError(f"{word!r} is no port: write 80, 80/udp or 80-90")
        protocol = (match[3] or "tcp").lower()
        yield from (f"{number}/{protocol}" for number in range(first, last + 1))


def signal_name(text: str) -> str:
    """The signal as written, when it can be one."""
    if not _SIGNAL.fullmatch(text) or text == "0":
        raise ValueError(f"{text!r} is no signal: write SIGTERM or 15")
    return text


def healthcheck(test: tuple[str, ...], flags: Mapping[str, str]) -> Healthcheck:
    """A health check; an option that is not given is 0, which leaves it to the engine."""
    retries = flags.get("retries", "0")
    if not re.fullmatch(r"[0-9]{1,9}", retries):
        raise ValueError(f"--retries is {retries!r}, not a number")
    return Healthcheck(
        test=test,
        interval_ns=_duration_ns(flags, "interval"),
        timeout_ns=_duration_ns(flags, "timeout"),
        start_period_ns=_duration_ns(flags, "start-period"),
        start_interval_ns=_duration_ns(flags, "start-interval"),
        retries=int(retries),
    )


def _duration_ns(flags: Mapping[str, str], name: str) -> int:
    text = flags.get(name, "0")
    total = 0
    if _DURATION.fullmatch(text):
        for number, unit in _PART.findall(text):
            whole, _, fraction = number.partition(".")
            nanoseconds = _UNITS_NS[unit]
            total += int(whole) * nanoseconds
            total += int(fraction or 0) * nanoseconds // 10 ** len(fraction)
        if total == 0 or 10**6 <= total <= _LONGEST_NS:
            return total
    raise ValueError(f"--{name} is {text!r}, not a duration such as 30s, of at least 1ms")
