"""Small files of the kernel's, read and written whole."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import Final

_REMOVE_PATIENCE_S: Final = 5.0
_POLL_S: Final = 0.002
_MOST_BYTES: Final = 65536


def write(path: Path | str, value: str | int) -> None:
    """Write a value in one call, as the kernel wants it. Raises OSError with the file name."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(fd)


def write_if_there(path: Path | str, value: str | int) -> bool:
    """The same where this kernel has the file; whether it has."""
    try:
        write(path, value)
    except FileNotFoundError:
        return False
    return True


def read(path: Path | str) -> str:
    """The content; nothing when there is no such file (any more)."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The kernel gives no more than a page of a list at a time.
            return b"".join(iter(lambda: os.read(fd, _MOST_BYTES), b"")).decode()
        except OSError as error:
            if error.errno != errno.ENODEV:  # the cgroup was just removed
                raise
        finally:
            os.close(fd)
    return ""


def number(path: Path | str) -> int:
    """The number in the file; 0 without one."""
    text = read(path).strip()
    return int(text) if text.isdigit() else 0


def fields(path: Path | str) -> dict[str, int]:
    """The lines `name number` of the file."""
    pairs = (line.split() for line in read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def remove_group(group: Path | str) -> None:
    """Remove a cgroup, with those that were made in it. Raises OSError when it stays in use.

    The kernel lets go of one a moment after its last process has ended.
    """
    give_up = time.monotonic() + _REMOVE_PATIENCE_S
    while True:
        try:
            os.rmdir(group)  # noqa: PTH106 # a Path is half of the work
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > give_up:
                raise
        else:
            return
        if not _removed_below(group):
            time.sleep(_POLL_S)


def _removed_below(group: Path | str) -> bool:
    """Remove the cgroups in `group`, the deepest first; whether there were any that went."""
    below = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)][:-1]
    for each in below:
        with contextlib.suppress(OSError):  # it is tried again
            each.rmdir()
    return any(not each.exists() for each in below)
