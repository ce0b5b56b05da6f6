"""The daemon's log: one JSON object a line."""

from __future__ import annotations

import datetime
import json
import logging
from pathlib import Path
from typing import Final

_ROTATE_BYTES: Final = 16 << 20


class JsonFormatter(logging.Formatter):
    """Time (UTC), level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_to(path: Path) -> None:
    """Send the package's log to the end of `path`; one grown long is first renamed to `.1`."""
    if path.exists() and path.stat().st_size > _ROTATE_BYTES:
        path.rename(path.with_suffix(path.suffix + ".1"))
    handler = logging.FileHandler(path)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("dsec_layers")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
