"""The daemon's log: one JSON object a line, or plain lines for people."""

from __future__ import annotations

import datetime
import json
import logging
from pathlib import Path
from typing import Final

FORMATS: Final = ("json", "text")
_ROTATE_BYTES: Final = 16 << 20
_FIELDS: Final = "dsec_fields"


_SOME: Final = 50  # lines of one kind in so many seconds
_SOME_S: Final = 10.0


def fields(**values: object) -> dict[str, object]:
    """The `extra` of a log call: what a program wants to know besides the message."""
    return {_FIELDS: values}


class JsonFormatter(logging.Formatter):
    """Time (UTC), level, logger, message, the fields, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Time (UTC), level and message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - of logging
        """ISO 8601."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        return moment.isoformat(timespec="milliseconds")


class Sparing(logging.Filter):
    """Lets at most `some` lines of one kind pass in `some_s` seconds; the next has `left_out`.

    When a store is down every failed chunk is a line, and programs try again.
    """

    def __init__(self, some: int = _SOME, some_s: float = _SOME_S) -> None:
        super().__init__()
        self._some = some
        self._some_s = some_s
        self._kinds: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written; its handler's lock is held."""
        kind = (record.name, record.msg)
        began, count = self._kinds.get(kind, (record.created, 0))
        if record.created - began >= self._some_s:
            if count > self._some:
                left_out = count - self._some
                setattr(record, _FIELDS, {**getattr(record, _FIELDS, {}), "left_out": left_out})
            began, count = record.created, 0
        self._kinds[kind] = (began, count + 1)
        return count < self._some


def log_to(path: Path, form: str = "json") -> None:
    """Send the package's log to the end of `path`; one grown long is first renamed to `.1`."""
    if path.exists() and path.stat().st_size > _ROTATE_BYTES:
        path.rename(path.with_suffix(path.suffix + ".1"))
    handler = logging.FileHandler(path)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(Sparing())
    logger = logging.getLogger("dsec_layers")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
