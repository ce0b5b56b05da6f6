"""What is asked of a build and what it gives."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.builder.layers import Image
from dsec_layers.builder.patterns import IgnoreRules
from dsec_layers.builder.scope import EPOCH_VARIABLE
from dsec_layers.builder.stepstores import MadeStep, StepStore
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.linux.ocispec import Bind, Mount
from dsec_layers.linux.runtime import Runtime, find_runtime
from dsec_layers.model.content import Source
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig

_MAX_EPOCH_DIGITS: Final = 10  # until the year 2286


class Lent(msgspec.Struct, frozen=True):
    """What this machine lends to a RUN: it is no input and leaves no trace."""

    binds: tuple[Bind, ...] = ()
    env: Mapping[str, str] = {}


class Shown(msgspec.Struct, frozen=True):
    """What the mounts of a RUN show, and the variables that hold secrets."""

    mounts: Sequence[Mount] = ()
    env: Mapping[str, str] = {}


# Given the root file system of a step and a folder to make and fill, which lasts as long as the
# step: what is lent to it.
Lend = Callable[[Path, Path], Lent]


def lend_nothing(_rootfs: Path, _folder: Path) -> Lent:
    """Builds as on a machine without settings of its own."""
    return Lent()


@contextlib.contextmanager
def any_runtime() -> Iterator[Runtime]:
    """The first runtime that works here. Raises CapabilityMissingError."""
    yield find_runtime()


def default_jobs() -> int:
    """How many steps are done at once: one a core, and two at least."""
    return max(2, len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A build. `home` is the folder of the step cache, on a disk file system.

    `epoch` is SOURCE_DATE_EPOCH in seconds; a build argument of that name counts when it is None.
    `kind` and `name` override the LAYER line, `target` names the stage to build. `secrets` are
    contents by id, for RUN --mount=type=secret. `contexts` are further folders that a `from` can
    name, `layers` what other names mean, in FROM too; both in lower case. At most `jobs` steps are
    done at once. `step_stores` are asked, in their order, for results of steps that are not here.
    `runtime` gives what runs a command, for as long as that takes.
    """

    layerfile: Path
    context: Path
    home: Path
    args: Mapping[str, str] = field(default_factory=dict)
    kind: str | None = None
    name: str | None = None
    target: str | None = None
    epoch: int | None = None
    no_cache: bool = False
    jobs: int = field(default_factory=default_jobs)
    step_stores: Sequence[StepStore] = ()
    lend: Lend = lend_nothing
    runtime: Callable[[], AbstractContextManager[Runtime]] = any_runtime
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    contexts: Mapping[str, Path] = field(default_factory=dict)
    layers: Mapping[str, Reference | Image] = field(default_factory=dict)


class BuildResult(msgspec.Struct, frozen=True, dict=True):
    """A layer ready to be packed.

    For a base `source` is the whole tree, else what is added over the base with the digest
    `base_digest`. `parent_digest` names the layer of its FROM line, which is another one when that
    is no base. `run` is what the layer asks for itself. `inputs` goes into the provenance. `steps`
    are all that were done, in their order. `results` names the folders that `source` is read from
    besides the layer below: they never change, and no name is used again.
    """

    read_source: Callable[[], Source]
    run: RunConfig
    kind: Kind
    name: str
    base_digest: str
    parent_digest: str
    layerfile_digest: str
    inputs: Mapping[str, str]
    epoch: int | None
    steps: Sequence[MadeStep] = ()
    results: Sequence[str] = ()

    @cached_property
    def source(self) -> Source:
        """What was built, read when it is first asked for: an earlier build may have packed it."""
        return self.read_source()


def locate(path: Path) -> tuple[Path, Path]:
    """The Layerfile and the context that a user means by `path`, a directory or a Layerfile.

    Raises NotFoundError.
    """
    layerfile = path / "Layerfile" if path.is_dir() else path
    if not layerfile.is_file():
        hint = "name the file with -f" if path.is_dir() else None
        raise NotFoundError(f"no Layerfile at {layerfile}", hint=hint)
    return layerfile, layerfile.parent


def find_epoch(request: BuildRequest) -> int | None:
    """SOURCE_DATE_EPOCH in seconds, or None. Raises InvalidInputError."""
    text = request.args.get(EPOCH_VARIABLE)
    if request.epoch is not None:
        text = str(request.epoch)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > _MAX_EPOCH_DIGITS:
        raise InvalidInputError(
            f"{EPOCH_VARIABLE} is {text!r}", hint="give the seconds since 1970, for example 0"
        )
    return int(text)


def read_ignore_rules(context: Path, layerfile: Path | None = None) -> IgnoreRules:
    """The rules of `<Layerfile>.dockerignore`, else of `.dockerignore` in the context.

    Raises InvalidInputError.
    """
    own = [layerfile.with_name(layerfile.name + ".dockerignore")] if layerfile else []
    for path in (*own, context / ".dockerignore"):
        if path.is_file():
            try:
                return IgnoreRules.parse(path.read_bytes())
            except ValueError as error:
                raise InvalidInputError(str(error), where=str(path)) from error
    return IgnoreRules()
