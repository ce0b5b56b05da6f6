"""Rules about variables: which are never set, which hold secrets, which choose a platform."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dsec_layers.builder.expand import expand
from dsec_layers.builder.lints.subject import Remark, Subject
from dsec_layers.builder.meanings import (
    Arg,
    Copy,
    Env,
    Expose,
    Label,
    Meaning,
    StopSignal,
    User,
    Volume,
    Workdir,
)
from dsec_layers.builder.scope import AMBIENT_ARGUMENTS, EPOCH_VARIABLE, platform_arguments
from dsec_layers.builder.stages import Stage
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig

_SECRET = re.compile(
    r"(?:^|_)(?:apikey|auth|credentials?|key|passw(?:or)?d|pword|secret|token)(?:_|$)",
    re.IGNORECASE,
)
_PUBLIC = re.compile(r"(?:^|_)public(?:_|$)", re.IGNORECASE)
_TARGET_PLATFORM = re.compile(r"\$(?:TARGETPLATFORM|\{TARGETPLATFORM\})")
# `$1` and `$$` are for shells; the proxies are set by whoever builds.
_NEVER_DECLARED = AMBIENT_ARGUMENTS | {EPOCH_VARIABLE}


def undefined_arg_in_from(subject: Subject) -> Iterator[Remark]:
    """FROM sees the arguments above the first one, and those about the platform."""
    known = _global_names(subject)
    for stage in subject.outline.stages:
        for text in (stage.head.parent, stage.head.platform or ""):
            for name in _missing(text, known, subject.layerfile.escape):
                yield stage.instruction, _not_set(name, known, "no ARG above the first FROM")


def undefined_var(subject: Subject) -> Iterator[Remark]:
    """A variable that nothing sets is empty. A shell's own are not looked at."""
    for stage in subject.outline.stages:
        run = subject.layers.get(stage.index)
        if run is not None:
            yield from _undefined_in(subject, stage, run)


def _undefined_in(subject: Subject, stage: Stage, run: RunConfig) -> Iterator[Remark]:
    known = {"PATH", *run.env}
    for meaning in subject.meanings_before(stage):
        known |= _set_by(meaning)
    for statement in stage.body:
        missing = {
            name
            for text in _expanded(statement.meaning)
            for name in _missing(text, known, subject.layerfile.escape)
        }
        for name in sorted(missing):
            yield statement.instruction, _not_set(name, known, "nothing above")
        known |= _set_by(statement.meaning)


def secrets_used(subject: Subject) -> Iterator[Remark]:
    """What ARG and ENV hold is kept in the layer, and everybody can read it."""
    for statement in subject.statements:
        if isinstance(statement.meaning, Arg | Env):
            for name, _ in statement.meaning.pairs:
                if _SECRET.search(name) and not _PUBLIC.search(name):
                    yield (
                        statement.instruction,
                        f"{name} looks like a secret, and would be kept: "
                        "use RUN --mount=type=secret",
                    )


def invalid_default_arg_in_from(subject: Subject) -> Iterator[Remark]:
    """Without build arguments FROM names something too."""
    values = platform_arguments()
    for _, meaning in subject.outline.arguments:
        for name, default in meaning.pairs:
            values[name] = _quietly(default or "", values, subject.layerfile.escape)
    for stage in subject.outline.stages:
        parent = stage.head.parent
        if "$" in parent and not _is_layer(_quietly(parent, values, subject.layerfile.escape)):
            yield stage.instruction, f"{parent} names no layer when no build argument is given"


def redundant_target_platform(subject: Subject) -> Iterator[Remark]:
    """The target's platform is what FROM takes anyway."""
    for stage in subject.outline.stages:
        if _TARGET_PLATFORM.fullmatch(stage.head.platform or ""):
            yield stage.instruction, f"--platform={stage.head.platform} is what it is without"


def constant_platform(subject: Subject) -> Iterator[Remark]:
    """A stage for one platform only says so in its name."""
    for stage in subject.outline.stages:
        platform = stage.head.platform or "$"
        if "$" not in platform and platform.split("/")[-1] not in (stage.head.name or ""):
            yield stage.instruction, f"--platform={platform} is the same on every machine"


class _Recorder(dict[str, str]):
    """Variables of which all are set; it remembers which were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def get(self, name: str, default: Any = None, /) -> Any:
        self.names[name] = None
        return default


def _missing(text: str, known: Collection[str], escape: str) -> list[str]:
    """The variables of a text that are not known, and for which it says no other value."""
    recorder = _Recorder()
    _quietly(text, recorder, escape)
    return [
        name
        for name in recorder.names
        if name.isidentifier()
        and name not in known
        and name not in _NEVER_DECLARED
        and not re.search(rf"\$\{{{name}:?[-+?]", text)
    ]


def _quietly(text: str, values: Mapping[str, str], escape: str) -> str:
    with contextlib.suppress(ValueError):
        return expand(text, values, escape=escape)
    return ""


def _not_set(name: str, known: Collection[str], by: str) -> str:
    import difflib  # few Dockerfiles need it

    close = difflib.get_close_matches(name, known, n=1)
    return f"{by} sets ${name}" + (f": did you mean ${close[0]}?" if close else "")


def _global_names(subject: Subject) -> set[str]:
    declared = {name for _, meaning in subject.outline.arguments for name, _ in meaning.pairs}
    return declared | set(platform_arguments())


def _set_by(meaning: Meaning) -> set[str]:
    return {name for name, _ in meaning.pairs} if isinstance(meaning, Arg | Env) else set()


def _is_layer(text: str) -> bool:
    if not text or text == "scratch" or "/" not in text:
        return bool(text)  # a stage, maybe
    try:
        Reference.parse(text)
    except InvalidInputError:
        return False
    return True


def _expanded(meaning: Meaning) -> list[str]:
    """The texts of an instruction in which variables are replaced before anything runs."""
    match meaning:
        case Env(pairs) | Label(pairs):
            return [text for pair in pairs for text in pair]
        case Arg(pairs):
            return [default for _, default in pairs if default is not None]
        case Copy():
            texts = [*meaning.sources, meaning.destination, *meaning.excludes]
            return [*texts, meaning.chown or "", meaning.chmod or ""]
        case Workdir(text) | User(text) | StopSignal(text):
            return [text]
        case Expose(texts) | Volume(texts):
            return list(texts)
    return []
