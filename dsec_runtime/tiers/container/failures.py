"""Errors of layers and of the kernel, as those of a sandbox: whose fault they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from dsec_layers.errors import (
    BusyError,
    CapabilityMissingError,
    DsecError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
    SignatureError,
)
from dsec_runtime.errors import (
    CreationFailedError,
    InfrastructureError,
    InvalidRequestError,
    OverloadedError,
    PolicyError,
    SandboxError,
    StateConflictError,
    UnknownSandboxError,
    UnsupportedError,
)

_MEANINGS: Final[tuple[tuple[type[DsecError], type[SandboxError]], ...]] = (
    (NotFoundError, UnknownSandboxError),
    (InvalidInputError, InvalidRequestError),
    (SignatureError, PolicyError),
    (CapabilityMissingError, UnsupportedError),
    (NoSpaceError, OverloadedError),
    (BusyError, StateConflictError),
)


@contextlib.contextmanager
def told(what: str, otherwise: type[InfrastructureError] = InfrastructureError) -> Iterator[None]:
    """Let only SandboxErrors out of the block; `what` begins those of `otherwise`."""
    try:
        yield
    except SandboxError:
        raise
    except DsecError as error:
        for theirs, ours in _MEANINGS:
            if isinstance(error, theirs):
                raise ours(error.message, hint=error.hint) from error
        raise otherwise(f"{what}: {error.message}", hint=error.hint) from error
    except (OSError, TimeoutError) as error:
        raise otherwise(f"{what}: {error}") from error


def creating(sandbox: str) -> contextlib.AbstractContextManager[None]:
    """The same while a sandbox is made."""
    return told(f"{sandbox} cannot be made", CreationFailedError)
