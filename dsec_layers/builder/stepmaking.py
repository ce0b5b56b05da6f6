"""Making steps: an instruction and the scope it stands in, put together."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dsec_layers.builder.expand import expand_heredoc
from dsec_layers.builder.layerfile import HereDoc, Instruction, heredoc_words
from dsec_layers.builder.layers import Image
from dsec_layers.builder.meanings import Copy, Run
from dsec_layers.builder.modes import parse_mode
from dsec_layers.builder.scope import AMBIENT_ARGUMENTS, EPOCH_VARIABLE, Scope
from dsec_layers.builder.steps import (
    SCRIPT_DIRECTORY,
    CopyStep,
    InlineFile,
    Remote,
    RunStep,
    Script,
    StepMount,
    Where,
)
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Reference
from dsec_layers.sources.remotefile import Checksum, file_name

_REMOTE = re.compile(r"https?://|ftp://|git://|ssh://|git@", re.IGNORECASE)
_GIT = re.compile(r"git://|ssh://|git@|https?://[^?#]*\.git(#.*)?$", re.IGNORECASE)
_TITLE_LENGTH: Final = 120


class Options(msgspec.Struct, frozen=True):
    """What the caller decides: build arguments, epoch in seconds, overrides of LAYER, the stage.

    `contexts` are the names of further contexts, `layers` what other names mean; all in lower case.
    """

    args: Mapping[str, str] = {}
    epoch: int | None = None
    kind: str | None = None
    name: str | None = None
    target: str | None = None
    contexts: frozenset[str] = frozenset()
    layers: Mapping[str, Reference | Image] = {}


def make_run_step(
    instruction: Instruction,
    run: Run,
    scope: Scope,
    options: Options,
    mounts: tuple[StepMount, ...] = (),
) -> RunStep:
    """The step of a RUN. Raises ValueError."""
    argv, script = _run_words(run, scope)
    env = scope.visible
    if options.epoch is not None:
        env[EPOCH_VARIABLE] = str(options.epoch)
    given = options.args.items()
    return RunStep(
        instruction.where,
        make_title(instruction),
        argv=argv,
        env=env,
        ambient={k: v for k, v in given if k in AMBIENT_ARGUMENTS and k not in env},
        cwd=scope.workdir,
        user=scope.user,
        network=run.network,
        script=script,
        mounts=mounts,
    )


def make_copy_step(instruction: Instruction, copy: Copy, scope: Scope, origin: Where) -> CopyStep:
    """The step of a COPY or ADD. Raises ValueError or InvalidInputError."""
    expanded = scope.expand(copy.destination)
    destination = scope.absolute(expanded)
    if expanded.endswith(("/", "/.")) or expanded == ".":
        destination = posixpath.join(destination, "")
    sources = [scope.expand(source) for source in copy.sources]
    remote = [source for source in sources if copy.is_add and _REMOTE.match(source)]
    return CopyStep(
        instruction.where,
        make_title(instruction),
        origin=origin,
        sources=tuple(source for source in sources if source not in remote),
        inline=tuple(_inline(heredoc, scope) for heredoc in copy.inline),
        destination=destination,
        chown=scope.expand(copy.chown) if copy.chown else None,
        chmod=parse_mode(scope.expand(copy.chmod)) if copy.chmod else None,
        extracts=copy.is_add and copy.unpack is not False,
        extracts_remote=copy.is_add and copy.unpack is True,
        remote=_remote(
            remote, scope.expand(copy.checksum) if copy.checksum else None, sources, destination
        ),
        excludes=tuple(scope.expand(pattern) for pattern in copy.excludes),
        parents=copy.parents,
    )


def _run_words(run: Run, scope: Scope) -> tuple[tuple[str, ...], Script | None]:
    """The words to execute, with the here-documents put where the shell looks for them."""
    command = run.command
    if not command.heredocs:
        return scope.command_words(command), None
    line = command.words[0]
    first = command.heredocs[0]
    alone = len(command.heredocs) == 1 and len(line.split()) == 1
    if alone and line == _announcement(line, scope):
        if first.content.startswith("#!"):
            script = Script(f"{SCRIPT_DIRECTORY}/{first.name}", first.content)
            return (script.path,), script
        return (*scope.shell, first.content), None
    bodies = "".join(f"\n{heredoc.body}{heredoc.name}" for heredoc in command.heredocs)
    return (*scope.shell, line + bodies), None


def _announcement(line: str, scope: Scope) -> str:
    """The text that announces the only here-document of a line, when nothing else stands there."""
    dash, word = heredoc_words(line, scope.escape)[0]
    return f"<<{dash}{word}"


def _inline(heredoc: HereDoc, scope: Scope) -> InlineFile:
    content = heredoc.content
    if heredoc.expand:
        content = expand_heredoc(content, scope.visible)
    return InlineFile(heredoc.name, content.encode())


def _remote(
    urls: Sequence[str], checksum: str | None, sources: Sequence[str], destination: str
) -> tuple[Remote, ...]:
    """What ADD fetches. Raises ValueError or InvalidInputError."""
    if checksum is not None and (not urls or len(sources) > 1):
        raise ValueError("--checksum goes with one URL as the only source")
    for url in urls:
        if _GIT.match(url):
            raise InvalidInputError(
                f"{url} is a git repository, which ADD does not clone here",
                hint="clone it in a RUN step, or beforehand into the context and COPY it",
            )
        if not file_name(url) and destination.endswith("/"):
            raise ValueError(f"{url} has no file name: end the destination with one")
    expected = Checksum.parse(checksum) if checksum is not None else None
    return tuple(Remote(url, expected) for url in urls)


def make_title(instruction: Instruction) -> str:
    """The instruction on one line, for people, with the script that a RUN holds."""
    scripts = [heredoc.body for heredoc in instruction.heredocs if instruction.keyword == "RUN"]
    inlined = [f"({'; '.join(filter(None, map(str.strip, it.splitlines())))})" for it in scripts]
    title = " ".join(" ".join([str(instruction), *inlined]).split())
    return title if len(title) <= _TITLE_LENGTH else title[: _TITLE_LENGTH - 1] + "…"
