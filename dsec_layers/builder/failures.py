"""What is said when a step fails: which one, where it stands in the Layerfile, its last output."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.builder.steps import RunStep, Step
from dsec_layers.errors import DISK_FULL, BuildError, DsecError, InvalidInputError, NoSpaceError
from dsec_layers.linux.container import Finished

_LAST_LINES: Final = 10
_FULL_BYTES: Final = 1 << 20


def command_failed(step: RunStep, label: str, finished: Finished, disk: Path) -> BuildError:
    """The error of a RUN whose command ended with another status than 0."""
    status = finished.status
    how = f"was killed by signal {status - 128}" if status > 128 else f"failed with status {status}"
    lines = finished.tail.decode(errors="replace").rstrip().splitlines()[-_LAST_LINES:]
    said = "".join(f"\n    {line}" for line in lines)
    full = b"No space left on device" in finished.tail or _is_full(disk)
    hint = f"no space is left below {disk}: free some" if full else None
    return BuildError(f"{step.where}: {label} {how}: {step.title}{said}", hint=hint)


@contextlib.contextmanager
def explained(step: Step, label: str) -> Iterator[None]:
    """Put the step and its line in front of what goes wrong while it is carried out."""
    try:
        yield
    except BuildError:
        raise
    except InvalidInputError as error:
        message = f"{label} {step.title}: {error}"
        raise InvalidInputError(message, where=step.where, hint=error.hint) from error
    except DsecError as error:
        message = f"{step.where}: {label} {step.title}: {error.message}"
        raise type(error)(message, hint=error.hint) from error
    except InterruptedError:
        raise
    except OSError as error:
        message = f"{step.where}: {label} {step.title}: {error}"
        if error.errno in DISK_FULL:
            raise NoSpaceError(message, hint="free some space and build again") from error
        raise BuildError(message) from error


def _is_full(folder: Path) -> bool:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize < _FULL_BYTES or (
        status.f_files > 0 and status.f_favail == 0
    )
