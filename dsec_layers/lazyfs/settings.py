"""What is tuned from outside: variables of the environment, which the daemon's flags override."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from dsec_layers.errors import InvalidInputError
from dsec_layers.lazyfs.logs import FORMATS
from dsec_layers.lazyfs.service import Options

CACHE_LIMIT: Final = "DSEC_CACHE_BYTES"
SLOW_READ: Final = "DSEC_SLOW_READ_S"
METRICS: Final = "DSEC_METRICS_LISTEN"
LOG_FORMAT: Final = "DSEC_LOG_FORMAT"
DEADLINE: Final = "DSEC_STORE_DEADLINE_S"
THREADS: Final = "DSEC_STORE_THREADS"
T = TypeVar("T", int, float)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags with the meaning of the variables."""
    parser.add_argument("--slow-read", metavar="SECONDS", help=f"${SLOW_READ}")
    parser.add_argument("--metrics-listen", metavar="HOST:PORT", help=f"${METRICS}")
    parser.add_argument("--log-format", choices=FORMATS, help=f"${LOG_FORMAT}")


def tuned(
    options: Options, environment: Mapping[str, str], flags: argparse.Namespace | None = None
) -> Options:
    """`options` with what the environment and the flags say. Raises InvalidInputError."""
    given = {
        SLOW_READ: getattr(flags, "slow_read", None),
        METRICS: getattr(flags, "metrics_listen", None),
        LOG_FORMAT: getattr(flags, "log_format", None),
    }
    told = {**environment, **{name: text for name, text in given.items() if text is not None}}
    form = told.get(LOG_FORMAT) or options.log_format
    if form not in FORMATS:
        raise InvalidInputError(f"{LOG_FORMAT} is {form!r}", hint=f"write {' or '.join(FORMATS)}")
    store = options.store
    return replace(
        options,
        cache_limit_bytes=_number(told, CACHE_LIMIT, int, options.cache_limit_bytes or 0) or None,
        slow_read_s=_number(told, SLOW_READ, float, options.slow_read_s),
        metrics_listen=told.get(METRICS) or options.metrics_listen,
        log_format=form,
        store=replace(
            store,
            deadline_s=_number(told, DEADLINE, float, store.deadline_s),
            threads=_number(told, THREADS, int, store.threads),
        ),
    )


def _number(told: Mapping[str, str], name: str, kind: Callable[[str], T], otherwise: T) -> T:
    text = told.get(name)
    if not text:
        return otherwise
    try:
        value = kind(text)
    except ValueError:
        value = kind("0")
    if not value > 0:
        raise InvalidInputError(f"{name} is {text!r}", hint="write a number above 0")
    return value
