"""The SDK without `await`: each call is carried out by a loop in a thread of its own.

Written by `python -m scripts.syncface` from the classes of the same names.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from dsec_runtime import sdk
from dsec_runtime.errors import SandboxError
from dsec_runtime.messages import Event, FileChange, Health, UsageAnswer
from dsec_runtime.sdk.args import DSecContainerRunArgs
from dsec_runtime.sdk.files import OnProgress
from dsec_runtime.sdk.fncalls import FncallResult, Tasks
from dsec_runtime.sdk.looping import entered, iterate, run
from dsec_runtime.sdk.output import Output
from dsec_runtime.sdk.results import ExecResult
from dsec_runtime.sdk.running import OnBytes
from dsec_runtime.spec import (
    ExecEnd,
    ExecInfo,
    FileInfo,
    FncallTask,
    NetworkCounts,
    NetworkRule,
    SandboxInfo,
    SandboxSpec,
    State,
)


class Process:
    """See `sdk.Process`."""

    def __init__(self, inner: sdk.Process) -> None:
        self._inner = inner

    @property
    def id(self) -> str:
        """See the class of `sdk`."""
        return self._inner.id

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        run(self._inner.__aexit__(None, None, None))

    def __iter__(self) -> Iterator[Output]:
        return iterate(aiter(self._inner))

    def wait(self) -> ExecEnd:
        """Read the rest of its output to nowhere; how it ended."""
        return run(self._inner.wait())

    def collect(self) -> ExecResult:
        """All output that has not been read yet, and how it ended."""
        return run(self._inner.collect())

    @property
    def end(self) -> ExecEnd | None:
        """See the class of `sdk`."""
        return self._inner.end

    @property
    def offsets(self) -> tuple[int, int]:
        """See the class of `sdk`."""
        return self._inner.offsets

    def write(self, data: bytes | str) -> None:
        """Give it input. It must have been started with `stdin=True` or a terminal."""
        run(self._inner.write(data))

    def close_stdin(self) -> None:
        """End its input."""
        run(self._inner.close_stdin())

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal."""
        run(self._inner.resize(rows, columns))

    def signal(self, number: int) -> None:
        """Send a signal to its first process."""
        run(self._inner.signal(number))

    def kill(self) -> None:
        """Kill it and all that it started."""
        run(self._inner.kill())

    def detach(self) -> None:
        """Close the connection; the command goes on."""
        run(self._inner.detach())


class Shell:
    """See `sdk.Shell`."""

    def __init__(self, inner: sdk.Shell) -> None:
        self._inner = inner

    @property
    def ended(self) -> bool:
        """See the class of `sdk`."""
        return self._inner.ended

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        run(self._inner.__aexit__(None, None, None))

    def run(self, command: str, *, timeout: float | None = None) -> ExecResult:
        """Evaluate `command`, and wait for its end; commands come one after the other."""
        return run(self._inner.run(command, timeout=timeout))

    def close(self) -> None:
        """Kill the shell and all that it started."""
        run(self._inner.close())


class Files:
    """See `sdk.Files`."""

    def __init__(self, inner: sdk.Files) -> None:
        self._inner = inner

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or so many of them from `offset`."""
        return run(self._inner.read(path, offset=offset, length=length))

    def read_text(self, path: str) -> str:
        """A file of UTF-8."""
        return run(self._inner.read_text(path))

    def stream(self, path: str, *, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The same in pieces."""
        return iterate(self._inner.stream(path, offset=offset, length=length))

    def write(
        self, path: str, data: bytes | str | AsyncIterable[bytes], *, mode: int | None = None
    ) -> FileInfo:
        """Make or replace a file; others see it when it is whole. `mode` is its permissions."""
        return run(self._inner.write(path, data, mode=mode))

    def stat(self, path: str) -> FileInfo:
        """What lstat(2) tells of a path."""
        return run(self._inner.stat(path))

    def exists(self, path: str) -> bool:
        """Whether there is something at a path, if only a broken link."""
        return run(self._inner.exists(path))

    def list_dir(self, path: str) -> list[FileInfo]:
        """What is in a directory, by name."""
        return run(self._inner.list_dir(path))

    def make_dir(self, path: str, *, mode: int = 493, parents: bool = True) -> None:
        """Make a directory; with `parents` those above it too, and one that is there is fine."""
        run(self._inner.make_dir(path, mode=mode, parents=parents))

    def move(self, source: str, target: str) -> None:
        """Rename a path, on top of a file if there is one."""
        run(self._inner.move(source, target))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a path, with all below it if so asked."""
        run(self._inner.remove(path, recursive=recursive))

    def chmod(self, path: str, mode: int) -> None:
        """Change permissions."""
        run(self._inner.chmod(path, mode))

    def upload(
        self, local: Path | str, remote: str, *, on_progress: OnProgress | None = None
    ) -> None:
        """Put a local file at `remote`, or what is in a local directory into that directory."""
        run(self._inner.upload(local, remote, on_progress=on_progress))

    def download(
        self, remote: str, local: Path | str, *, on_progress: OnProgress | None = None
    ) -> list[str]:
        """Get a file, or what is in a directory into a local one."""
        return run(self._inner.download(remote, local, on_progress=on_progress))

    def watch(self, path: str) -> AbstractContextManager[Iterator[FileChange]]:
        """What changes in a directory and below; within the context all changes are recorded."""
        return entered(self._inner.watch(path))


class Forward:
    """See `sdk.Forward`."""

    def __init__(self, inner: sdk.Forward) -> None:
        self._inner = inner

    @property
    def host(self) -> str:
        """See the class of `sdk`."""
        return self._inner.host

    @property
    def port(self) -> int:
        """See the class of `sdk`."""
        return self._inner.port

    @property
    def error(self) -> SandboxError | None:
        """See the class of `sdk`."""
        return self._inner.error

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *_: object) -> None:
        run(self._inner.__aexit__(None, None, None))

    def close(self) -> None:
        """Listen no more, and end all connections."""
        run(self._inner.close())


class Ports:
    """See `sdk.Ports`."""

    def __init__(self, inner: sdk.Ports) -> None:
        self._inner = inner

    def forward(self, port: int, *, local_port: int = 0, host: str = "127.0.0.1") -> Forward:
        """Listen here and carry connections to `port` inside; 0 takes a free local port."""
        return Forward(run(self._inner.forward(port, local_port=local_port, host=host)))


class Sandbox:
    """See `sdk.Sandbox`."""

    def __init__(self, inner: sdk.Sandbox) -> None:
        self._inner = inner
        self.files = Files(inner.files)
        self.ports = Ports(inner.ports)

    @property
    def info(self) -> SandboxInfo:
        """See the class of `sdk`."""
        return self._inner.info

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        run(self._inner.__aexit__(None, None, None))

    def run_shell(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        on_stdout: OnBytes | None = None,
        on_stderr: OnBytes | None = None,
        check: bool = False,
    ) -> ExecResult:
        """Run a command line by `/bin/sh -c`, to its end; as `exec`."""
        return run(
            self._inner.run_shell(
                command,
                env=env,
                cwd=cwd,
                user=user,
                stdin=stdin,
                timeout=timeout,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                check=check,
            )
        )

    def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        output_limit: int | None = None,
        on_limit: str = "kill",
        merge: bool = False,
        on_stdout: OnBytes | None = None,
        on_stderr: OnBytes | None = None,
        check: bool = False,
    ) -> ExecResult:
        """Run a program to its end."""
        return run(
            self._inner.exec(
                argv,
                env=env,
                cwd=cwd,
                user=user,
                stdin=stdin,
                timeout=timeout,
                output_limit=output_limit,
                on_limit=on_limit,
                merge=merge,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                check=check,
            )
        )

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        timeout: float | None = None,
        output_limit: int | None = None,
        on_limit: str = "kill",
        keep: int | None = None,
        merge: bool = False,
    ) -> Process:
        """Start a program and return while it runs."""
        return Process(
            run(
                self._inner.start(
                    argv,
                    env=env,
                    cwd=cwd,
                    user=user,
                    stdin=stdin,
                    pty=pty,
                    timeout=timeout,
                    output_limit=output_limit,
                    on_limit=on_limit,
                    keep=keep,
                    merge=merge,
                )
            )
        )

    def attach(self, command: str, *, stdout_offset: int = 0, stderr_offset: int = 0) -> Process:
        """Listen to a command of this sandbox, from an offset of its output. Also an ended one."""
        return Process(
            run(
                self._inner.attach(
                    command, stdout_offset=stdout_offset, stderr_offset=stderr_offset
                )
            )
        )

    def commands(self) -> list[ExecInfo]:
        """The commands that are known, ended ones too as long as they are kept."""
        return run(self._inner.commands())

    def shell(
        self,
        program: str = "/bin/sh",
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
    ) -> Shell:
        """A shell that keeps its directory and variables from one command to the next."""
        return Shell(run(self._inner.shell(program, env=env, cwd=cwd, user=user)))

    @property
    def id(self) -> str:
        """See the class of `sdk`."""
        return self._inner.id

    def refresh(self) -> SandboxInfo:
        """Ask the edge what it knows."""
        return run(self._inner.refresh())

    def stop(self) -> SandboxInfo:
        """End it with all that it has; one that has ended stays so."""
        return run(self._inner.stop())

    def pause(self) -> int:
        """Freeze it; how many bytes of memory it gave back."""
        return run(self._inner.pause())

    def resume(self) -> SandboxInfo:
        """Let it go on."""
        return run(self._inner.resume())

    def snapshot(
        self,
        reference: str,
        *,
        scrub_git: bool = False,
        shallow: bool = False,
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
    ) -> str:
        """Make a layer of what it wrote, named `reference`; the layer's digest."""
        return run(
            self._inner.snapshot(
                reference, scrub_git=scrub_git, shallow=shallow, keep=keep, drop=drop
            )
        )

    def fork(self, count: int = 1, *, labels: Mapping[str, str] | None = None) -> list[Sandbox]:
        """So many new sandboxes that begin with its files as they are now."""
        return [Sandbox(each) for each in run(self._inner.fork(count, labels=labels))]

    def set_network(self, rules: Mapping[str, bool] | Sequence[NetworkRule]) -> SandboxInfo:
        """Rules that take the place of those it has."""
        return run(self._inner.set_network(rules))

    def network_counts(self) -> NetworkCounts:
        """What its network did, and what it was refused."""
        return run(self._inner.network_counts())

    def set_ttl(
        self,
        *,
        running_stop: float | None = None,
        paused_stop: float | None = None,
        age_stop: float | None = None,
    ) -> SandboxInfo:
        """After how many seconds of idling, of being paused and in all it is ended; anew."""
        return run(
            self._inner.set_ttl(
                running_stop=running_stop, paused_stop=paused_stop, age_stop=age_stop
            )
        )

    def set_labels(self, labels: Mapping[str, str | None]) -> SandboxInfo:
        """Set labels; None removes one."""
        return run(self._inner.set_labels(labels))

    def claim(self, owner: str) -> SandboxInfo:
        """Make it `owner`'s, if nobody else's since `info`. Raises StateConflictError."""
        return run(self._inner.claim(owner))

    def usage(self) -> UsageAnswer:
        """What it uses now, and what its limits have stopped so far."""
        return run(self._inner.usage())

    def log(self) -> list[Event]:
        """What it was asked and did, as far as it is kept."""
        return run(self._inner.log())

    def events(self) -> Iterator[Event]:
        """What happens to it from now on, until it ends."""
        return iterate(self._inner.events())


class DSecClient:
    """See `sdk.DSecClient`."""

    def __init__(
        self,
        edge: str | None = None,
        *,
        token: str | None = None,
        owner: str | None = None,
        lease_s: float | None = 600.0,
        patience_s: float = 10.0,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._inner = sdk.DSecClient(
            edge, token=token, owner=owner, lease_s=lease_s, patience_s=patience_s, verify=verify
        )

    def __enter__(self) -> DSecClient:
        run(self._inner.open())
        return self

    def __exit__(self, *_: object) -> None:
        run(self._inner.__aexit__(None, None, None))

    def open(self) -> DSecClient:
        """Reach the edge. Raises EdgeUnreachableError, UnauthorizedError."""
        run(self._inner.open())
        return self

    def close(self) -> None:
        """Leave. Sandboxes go on until the lease of their owner has run out."""
        run(self._inner.close())

    def run_container(
        self, args: DSecContainerRunArgs, *, timeout: float = 120.0, key: str | None = None
    ) -> Sandbox:
        """Make a container and wait until it runs; nothing of it is left when that fails."""
        return Sandbox(run(self._inner.run_container(args, timeout=timeout, key=key)))

    def create(
        self, spec: SandboxSpec, *, timeout: float = 120.0, key: str | None = None
    ) -> Sandbox:
        """The same for any tier."""
        return Sandbox(run(self._inner.create(spec, timeout=timeout, key=key)))

    def get(self, sandbox: str) -> Sandbox:
        """A sandbox by its id. Raises UnknownSandboxError."""
        return Sandbox(run(self._inner.get(sandbox)))

    def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        states: Sequence[State] = (),
        owner: str | None = None,
        ended: bool = False,
    ) -> list[SandboxInfo]:
        """Sandboxes, the oldest first; those that have ended only when they are asked for."""
        return run(self._inner.list(labels=labels, states=states, owner=owner, ended=ended))

    def run_fncall(self, task: FncallTask) -> FncallResult:
        """Run a stateless task in a warm container, of which nothing is kept."""
        return run(self._inner.run_fncall(task))

    def run_fncalls(self, tasks: Tasks) -> Iterator[FncallResult]:
        """Run any number of stateless tasks, and give each result when it is there."""
        return iterate(self._inner.run_fncalls(tasks))

    def fncall_log(self) -> Sequence[Event]:
        """What is kept of the log of our stateless tasks (an operator sees all), oldest first."""
        return run(self._inner.fncall_log())

    def health(self) -> Health:
        """How the edge is."""
        return run(self._inner.health())

    def metrics(self) -> str:
        """Its figures, as Prometheus reads them."""
        return run(self._inner.metrics())

    def events(self) -> Iterator[Event]:
        """What happens to all sandboxes that are ours, from now on."""
        return iterate(self._inner.events())
