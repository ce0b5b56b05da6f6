"""Which OCI runtime works here: found by trying, remembered until something changes.

    DSEC_HOME/run/oci-runtime.json    the runtime, and for which boot, namespace and program it is

Trying takes about as long as a short command runs, so `run` and `build` do not try each time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dsec_layers.errors import CorruptError, DsecError
from dsec_layers.linux import procinfo
from dsec_layers.linux.capabilities import Capability, require
from dsec_layers.linux.runtime import Runtime, find_runtime
from dsec_layers.model import canonical


class _Remembered(msgspec.Struct, frozen=True):
    program: str
    prefix: tuple[str, ...]
    validity: tuple[str, ...]


def working_runtime(run: Path) -> Runtime:
    """The runtime that was found before, or is found now. Raises CapabilityMissingError."""
    file = run / "oci-runtime.json"
    with contextlib.suppress(OSError, CorruptError):
        known = canonical.decode(file.read_bytes(), _Remembered, what=str(file))
        if known.validity == _validity(known.program):
            return Runtime(known.program, known.prefix)
    require(Capability.OCI)
    found = find_runtime()
    with contextlib.suppress(OSError):
        remembered = _Remembered(found.program, found.prefix, _validity(found.program))
        aside = file.with_name(f"{file.name}.{os.getpid()}")
        aside.write_bytes(canonical.encode(remembered))
        aside.replace(file)
    return found


@contextlib.contextmanager
def remembered_runtime(run: Path) -> Iterator[Runtime]:
    """The working runtime, for a block that runs a container.

    When the block fails, perhaps since it works no more, they are tried again next time. Raises as
    `working_runtime`.
    """
    try:
        yield working_runtime(run)
    except DsecError:
        (run / "oci-runtime.json").unlink(missing_ok=True)
        raise


def _validity(program: str) -> tuple[str, ...]:
    """What must not have changed. Raises OSError when the program is gone."""
    status = Path(program).stat()
    return (
        procinfo.boot_id(),
        str(procinfo.mount_namespace()),
        str(os.geteuid()),
        f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}",
    )
