"""What can go wrong with a sandbox, in three families that a caller must never mix up.

The agent's fault (`AgentError`) is an observation for the model: its command ended badly, ran into
a limit or took too long. Infrastructure's fault (`InfrastructureError`) says nothing about the
agent: try again, elsewhere. A refusal (`PolicyError`) was meant by whoever set the policy.

Each class has a stable `code`, in which it travels through the HTTP API and back into the class,
the HTTP status with which it does, and the exit code of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from dsec_layers.errors import DsecError

Detail = str | int | float | bool | None


class SandboxError(DsecError):
    """Base of all; `detail` says in fields what `message` says in words."""

    code: ClassVar[str] = "sandbox_error"
    status: ClassVar[int] = 500
    exit_code = 20

    def __init__(
        self, message: str, *, hint: str | None = None, detail: Mapping[str, Detail] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.detail = dict(detail or {})


class AgentError(SandboxError):
    """What runs in the sandbox is the cause."""

    code = "agent_error"
    status = 422
    exit_code = 21


class CommandFailedError(AgentError):
    """A checked command exited with a status other than 0, or by a signal."""

    code = "command_failed"


class OutOfMemoryError(AgentError):
    """The sandbox reached its memory limit and the kernel killed a process of it.

    `detail`: process, pid, limit_bytes.
    """

    code = "out_of_memory"


class CommandTimeoutError(AgentError):
    """A command outlived its deadline; its whole tree was killed. `detail`: timeout_s."""

    code = "command_timeout"


class OutputLimitError(AgentError):
    """A command wrote more than its cap and was killed. `detail`: limit_bytes."""

    code = "output_limit"


class DiskQuotaError(AgentError):
    """The writable disk of the sandbox is full. `detail`: limit_bytes."""

    code = "disk_quota"


class FileError(AgentError):
    """A file operation in the sandbox failed. `detail`: path, errno."""

    code = "file_error"
    status = 404


class InfrastructureError(SandboxError):
    """The platform is the cause; never show this to a model as an observation."""

    code = "infrastructure_error"
    status = 503
    exit_code = 22


class LostError(InfrastructureError):
    """The sandbox is gone: its node or its first process died. It does not come back."""

    code = "lost"
    status = 410


class EdgeUnreachableError(InfrastructureError):
    """No edge answers at the address, or the connection broke and could not be made again."""

    code = "edge_unreachable"


class CreationFailedError(InfrastructureError):
    """The sandbox could not be made; nothing of it is left."""

    code = "creation_failed"


class OverloadedError(InfrastructureError):
    """The node takes no more now. `detail`: retry_after_s."""

    code = "overloaded"


class RequestTimeoutError(InfrastructureError):
    """The platform did not answer in time; the operation may have happened."""

    code = "request_timeout"
    status = 504


class PolicyError(SandboxError):
    """Policy, quota or a capability that is not there forbids it."""

    code = "policy_error"
    status = 403
    exit_code = 23


class UnauthorizedError(PolicyError):
    """No token, a wrong one, or one that does not hold for this."""

    code = "unauthorized"
    status = 401


class QuotaError(PolicyError):
    """The project may hold no more of this."""

    code = "quota"
    status = 429


class UnsupportedError(PolicyError):
    """This tier or this node cannot do it; the message names what is missing."""

    code = "unsupported"
    status = 501


class InvalidRequestError(SandboxError):
    """The request is malformed; the message names the field."""

    code = "invalid_request"
    status = 400
    exit_code = 3


class UnknownSandboxError(SandboxError):
    """There is no such sandbox, command or environment."""

    code = "not_found"
    status = 404
    exit_code = 4


class StateConflictError(SandboxError):
    """The sandbox is not in a state for it, or the idempotency key belongs to another request."""

    code = "conflict"
    status = 409
    exit_code = 6


def _tree(root: type[SandboxError]) -> dict[str, type[SandboxError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


BY_CODE: Mapping[str, type[SandboxError]] = _tree(SandboxError)


def from_code(
    code: str, message: str, hint: str | None, detail: Mapping[str, Detail]
) -> SandboxError:
    """The error that an answer names; an unknown code, of a newer edge, is its nearest base."""
    return BY_CODE.get(code, InfrastructureError)(message, hint=hint, detail=detail)
