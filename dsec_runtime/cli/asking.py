"""The options of a new sandbox, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from dsec_layers.cli.context import ReferenceType, assignments
from dsec_layers.cli.sizes import SizeType
from dsec_layers.cli.spans import SpanType
from dsec_runtime.cli.rules import METAVAR, RuleType
from dsec_runtime.spec import MIB

if TYPE_CHECKING:
    from dsec_runtime.sdk.args import DSecContainerRunArgs

F = TypeVar("F", bound=Callable[..., object])

_OPTIONS = (
    click.option("--image", is_flag=True, help="ENVIRONMENT is an OCI image, as debian:12."),
    click.option("--memory", type=SizeType(), help="The most memory, such as 512M."),
    click.option("--cpus", type=click.FloatRange(0, min_open=True), help="Cores, such as 1.5."),
    click.option("--disk", type=SizeType(), help="The most that it may write to its disk."),
    click.option("--pids", type=click.IntRange(1), help="The most processes and threads."),
    click.option("--be", is_flag=True, help="Best effort: the CPU that the others leave."),
    click.option("--idle", type=SpanType(), help="End it when it idles so long, such as 10m."),
    click.option("--age", type=SpanType(), help="End it when it is so old."),
    click.option(
        "--allow",
        multiple=True,
        type=RuleType(allow=True),
        metavar=METAVAR,
        help="Open the network to a service (pypi), a name (*.example.org) or a network.",
    ),
    click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label."),
    click.option("--env", "-e", "env", multiple=True, metavar="NAME[=VALUE]", help="A variable."),
    click.option("--workdir", "-w", help="The working directory of its commands."),
    click.option("--user", "-u", help="The user of its commands."),
)

environment_argument = click.argument("environment", type=str)


def sandbox_options(command: F) -> F:
    """All options that describe a new sandbox."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_args(environment: str, given: dict[str, object]) -> DSecContainerRunArgs:
    """The values of `sandbox_options` as the SDK wants them. Raises InvalidInputError."""
    from dsec_runtime.sdk.args import DSecContainerRunArgs

    is_image = bool(given["image"])
    if not is_image:
        ReferenceType().convert(environment, None, None)  # a bad one is told before it travels
    labels, env = given["labels"], given["env"]
    allowed = given["allow"]
    assert isinstance(labels, tuple)
    assert isinstance(env, tuple)
    assert isinstance(allowed, tuple)
    values = {
        "memory_limit_mb": _mib(given["memory"]),
        "disk_limit_mb": _mib(given["disk"]),
        "cpu_cores_limit": given["cpus"],
        "pids_limit": given["pids"],
        "cpu_class": "be" if given["be"] else "ls",
        "ttl_running_stop": given["idle"],
        "ttl_age_stop": given["age"],
        "network_rules": allowed,
        "labels": assignments(labels, "--label"),
        "env": assignments(env, "--env"),
        "workdir": given["workdir"],
        "init_user": given["user"],
    }
    return DSecContainerRunArgs(
        container_image=environment if is_image else None,
        environment=None if is_image else environment,
        **values,  # type: ignore[arg-type] # checked when they become a specification
    )


def _mib(size_bytes: object) -> int | None:
    return None if size_bytes is None else max(1, int(str(size_bytes)) // MIB)
