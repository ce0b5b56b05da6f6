"""What the kernel's log tells of processes that it killed for want of memory.

Source: the kernel's mm/oom_kill.c (dump_oom_victim) and Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import msgspec

_RECORD_BYTES = 8192
_VICTIM = re.compile(
    r"oom-kill:.*?oom_memcg=(?P<limited>[^,]*),task_memcg=(?P<group>[^,]*),"
    r"task=(?P<task>.*),pid=(?P<pid>\d+),uid="
)


class Victim(msgspec.Struct, frozen=True):
    """A killed process: its name, its id in the node, and the cgroup whose limit was reached."""

    process: str
    pid: int
    cgroup: str


class KernelLog:
    """Reads what was logged since it was made. Raises OSError where the log may not be read."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)

    def close(self) -> None:
        """Read no more."""
        os.close(self._fd)

    def victims(self) -> Iterator[Victim]:
        """The processes killed since the last call."""
        while True:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the log has turned over what was not read
                continue
            if found := parse(record):
                yield found


def parse(record: bytes) -> Victim | None:
    """The victim that a record of /dev/kmsg tells of."""
    text = record.partition(b";")[2].partition(b"\n")[0].decode(errors="replace")
    match = _VICTIM.match(text)
    return Victim(match["task"], int(match["pid"]), match["group"]) if match else None
