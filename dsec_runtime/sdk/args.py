"""What the caller asks of a new sandbox, in the words of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.spec import (
    MIB,
    CpuClass,
    Environment,
    Lifetime,
    Limits,
    NetworkRule,
    SandboxSpec,
    Tier,
)


class DSecEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """Layers by reference: a base, at most one workspace above it, toolkits on top."""

    base: str
    workspace: str | None = None
    toolkits: Sequence[str] = ()

    @property
    def layers(self) -> tuple[str, ...]:
        """All of them, the lowest first."""
        return (self.base, *([self.workspace] if self.workspace else []), *self.toolkits)


class DSecContainerRunArgs(msgspec.Struct, frozen=True, kw_only=True):
    """A container. Exactly one of `container_image` and `environment` is given.

    `container_image` is an OCI image, imported when it is first used; `environment` a reference to
    an environment or layer, or a DSecEnvironment. A MB is 2**20 bytes. Times are seconds:
    `ttl_running_stop` of idling, `ttl_paused_stop` of being paused, `ttl_age_stop` since creation.
    `network_rules` are names of services and whether they may be reached, or NetworkRules; what no
    rule allows is denied. `init_user` is the user of commands that name no other.
    """

    container_image: str | None = None
    environment: str | DSecEnvironment | None = None
    memory_limit_mb: int | None = None
    cpu_cores_limit: float | None = None
    disk_limit_mb: int | None = None
    pids_limit: int | None = None
    io_weight: int | None = None
    cpu_class: CpuClass = CpuClass.LS
    ttl_running_stop: float | None = None
    ttl_paused_stop: float | None = None
    ttl_age_stop: float | None = None
    network_rules: Mapping[str, bool] | Sequence[NetworkRule] = {}
    init_user: str | None = None
    env: Mapping[str, str] = {}
    workdir: str | None = None
    hostname: str = "sandbox"
    labels: Mapping[str, str] = {}
    new_privileges: bool = False

    def spec(self, owner: str | None = None) -> SandboxSpec:
        """The same as the edge wants it. Raises InvalidRequestError."""
        made = SandboxSpec(
            tier=Tier.CONTAINER,
            environment=self._environment(),
            limits=Limits(
                memory_bytes=_mib(self.memory_limit_mb),
                cpu_cores=self.cpu_cores_limit,
                pids=self.pids_limit,
                disk_bytes=_mib(self.disk_limit_mb),
                io_weight=self.io_weight,
            ),
            cpu_class=self.cpu_class,
            lifetime=Lifetime(
                idle_s=self.ttl_running_stop,
                age_s=self.ttl_age_stop,
                paused_s=self.ttl_paused_stop,
            ),
            network=network_rules(self.network_rules),
            env=dict(self.env),
            workdir=self.workdir,
            user=self.init_user,
            hostname=self.hostname,
            labels=dict(self.labels),
            new_privileges=self.new_privileges,
            owner=owner,
        )
        return checked(made)

    def _environment(self) -> Environment:
        if (self.container_image is None) == (self.environment is None):
            raise InvalidRequestError("give either container_image or environment")
        if self.container_image is not None:
            return Environment(image=self.container_image)
        if isinstance(self.environment, DSecEnvironment):
            return Environment(layers=self.environment.layers)
        return Environment(reference=self.environment)


def network_rules(given: Mapping[str, bool] | Sequence[NetworkRule]) -> tuple[NetworkRule, ...]:
    """Rules of either form as the edge wants them."""
    if isinstance(given, Mapping):
        return tuple(NetworkRule(service=name, allow=allow) for name, allow in given.items())
    return tuple(given)


def checked(spec: SandboxSpec) -> SandboxSpec:
    """The same, held to the bounds of its fields. Raises InvalidRequestError."""
    try:
        return msgspec.convert(msgspec.to_builtins(spec), SandboxSpec)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(str(error)) from error


def _mib(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes * MIB
