"""A command in a container on a lazily mounted environment."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsec_layers.api.lending import secured
from dsec_layers.api.managing import manager
from dsec_layers.api.runtimes import remembered_runtime
from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import container
from dsec_layers.linux.mountpoints import make_stubs
from dsec_layers.linux.ocispec import Bind, Command, Network
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What overrides the environment's own run configuration, and how it is mounted."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    entrypoint: Sequence[str] | None = None
    network: Network = "host"
    read_only: bool = False
    upper: Path | None = None
    binds: Sequence[Bind] = ()
    interactive: bool = False
    tty: bool = False
    prefetch_bytes: int | None = None


def run(
    bench: Workbench,
    reference: Reference,
    argv: Sequence[str],
    options: RunOptions = RunOptions(),
    *,
    on_output: Callable[[bytes], None] | None = None,
    on_error: Callable[[bytes], None] | None = None,
    on_complaint: Callable[[str], None] = lambda _: None,
) -> int:
    """Run `argv`, or the environment's own command, to its end; return its exit status.

    What it writes is gone afterwards unless `options.upper` names a directory for it. Without
    `on_output` the command has our standard output and error. `on_complaint` is told why a program
    could not be started, of which the status is 126 or 127. Raises NotFoundError, CorruptError,
    CapabilityMissingError, InvalidInputError, DaemonError, StoreError.
    """
    with secured(bench, reference) as stack:
        return _run(bench, stack, argv, options, on_output, on_error, on_complaint)


def _run(
    bench: Workbench,
    stack: Stack,
    argv: Sequence[str],
    options: RunOptions,
    on_output: Callable[[bytes], None] | None,
    on_error: Callable[[bytes], None] | None,
    on_complaint: Callable[[str], None],
) -> int:
    words = command_words(stack.run, argv, options.entrypoint)
    if not words:
        raise InvalidInputError(
            f"{stack.reference} has no command of its own", hint="give one after --"
        )
    rootfs_manager = manager(bench, stack, options.prefetch_bytes)
    scratch = bench.home.run / "containers"
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    container.remove_stale(scratch)
    with (
        remembered_runtime(bench.home.run) as runtime,
        work_folder(bench.home.root, "stubs") as stubs,
        rootfs_manager.mounted(
            stack.layers,
            read_only=options.read_only,
            upper=options.upper,
            extra_lowers=[stubs],
            on_layers=lambda layers: make_stubs(stubs, layers[::-1], options.binds),
            name=f"{stack.reference} $ {shlex.join(words)}",
        ) as rootfs,
    ):
        command = _command(rootfs.target, words, stack.run, options)
        finished = container.run(
            command, scratch, on_output=on_output, on_error=on_error, by=runtime
        )
    if finished.complaint:
        on_complaint(finished.complaint)
    return finished.status


def _command(rootfs: Path, words: Sequence[str], config: RunConfig, options: RunOptions) -> Command:
    return Command(
        rootfs=rootfs,
        argv=words,
        env={**config.env, **options.env},
        cwd=options.workdir or config.workdir or "/",
        user=options.user or config.user,
        network=options.network,
        binds=options.binds,
        read_only=options.read_only,
        stdin="inherited" if options.interactive or options.tty else "empty",
        tty=options.tty,
    )


def command_words(
    config: RunConfig, argv: Sequence[str], entrypoint: Sequence[str] | None
) -> tuple[str, ...]:
    """As Docker does: entrypoint, then the given words or else the default command.

    An entrypoint that the caller gives drops the default command.
    """
    if entrypoint is not None:
        return (*entrypoint, *argv)
    return (*(config.entrypoint or ()), *(argv or config.cmd or ()))
