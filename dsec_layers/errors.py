"""Every error a user can meet: one class, one message, one exit code.

An error carries what happened (`message`) and, where we know it, how to mend it (`hint`). The
command line prints both as one line each and exits with `exit_code`; the codes are stable and
listed in `docs/errors.md`, which is generated from this file.
"""

from __future__ import annotations

import errno
from typing import Final

# What the kernel answers when a disk, or a user's share of it, is full.
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class DsecError(Exception):
    """Something failed that has no better class."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInputError(DsecError):
    """A reference, Layerfile, archive, manifest or option is malformed.

    `where` is `file:line` when there is one.
    """

    exit_code = 3

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.where = where


class NotFoundError(DsecError):
    """A reference, layer, blob or mount does not exist."""

    exit_code = 4


class CorruptError(DsecError):
    """Bytes do not match their digest, length or format. Never retried as if they were missing."""

    exit_code = 5


class ConflictError(DsecError):
    """Somebody else changed a reference first or a name is already taken."""

    exit_code = 6


class CapabilityMissingError(DsecError):
    """This machine lacks what the operation needs: root, a file system, a device, a program."""

    exit_code = 7


class StoreError(DsecError):
    """A store cannot be reached or gave an error that is neither missing nor corrupt."""

    exit_code = 8


class NoSpaceError(DsecError):
    """A disk is full. Nothing half-written is left visible."""

    exit_code = 9


class BuildError(DsecError):
    """A build step failed: the message names it and ends with the last lines of its output."""

    exit_code = 10


class DaemonError(DsecError):
    """The lazy file system daemon cannot be started, reached, or refused a request."""

    exit_code = 11


class BusyError(DsecError):
    """A mount, layer or lock is in use."""

    exit_code = 12


class SignatureError(DsecError):
    """A signature that was asked for is missing or wrong, or a key cannot be used.

    What was to be mounted, fetched or built on has not been touched.
    """

    exit_code = 13
