"""Rules about how an instruction is written, and which stand together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsec_layers.builder.lints.subject import Remark, Subject
from dsec_layers.builder.meanings import (
    Cmd,
    Copy,
    Entrypoint,
    Env,
    Expose,
    Health,
    Label,
    Maintainer,
    Shell,
    Workdir,
)
from dsec_layers.builder.patterns import has_wildcard
from dsec_layers.builder.words import split_words

_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def no_empty_continuation(subject: Subject) -> Iterator[Remark]:
    """An empty line does not end an instruction that is continued, and looks as if it did."""
    for instruction in subject.layerfile.instructions:
        if instruction.has_gap:
            yield instruction, "an empty line stands between its continued lines"


def json_args_recommended(subject: Subject) -> Iterator[Remark]:
    """A shell stands between signals and a command that is no JSON list."""
    for stage in subject.outline.stages:
        chose_shell = any(isinstance(it, Shell) for it in subject.meanings_before(stage))
        for statement in stage.body:
            meaning = statement.meaning
            chose_shell = chose_shell or isinstance(meaning, Shell)
            if isinstance(meaning, Cmd | Entrypoint) and meaning.command.for_shell:
                keyword = statement.instruction.keyword
                if not chose_shell:
                    yield (
                        statement.instruction,
                        f"signals do not reach the command of {keyword} through its shell: "
                        "write a JSON list",
                    )


def maintainer_deprecated(subject: Subject) -> Iterator[Remark]:
    """A label says the same."""
    for statement in subject.statements:
        if isinstance(statement.meaning, Maintainer):
            yield statement.instruction, "write LABEL org.opencontainers.image.authors=..."


def legacy_key_value_format(subject: Subject) -> Iterator[Remark]:
    """`ENV name value` takes one name only, and its value is easily misread."""
    for statement in subject.statements:
        instruction = statement.instruction
        if isinstance(statement.meaning, Env | Label):
            first = split_words(instruction.text, escape=subject.layerfile.escape)[0]
            if "=" not in first:
                yield instruction, f"write {instruction.keyword} {first}=..."


def multiple_instructions(subject: Subject) -> Iterator[Remark]:
    """Of these only the last in a stage has an effect."""
    for stage in subject.outline.stages:
        later: set[type] = set()
        for statement in reversed(stage.body):
            kind = type(statement.meaning)
            if kind in later:
                keyword = statement.instruction.keyword
                yield statement.instruction, f"a {keyword} below takes the place of this one"
            if kind in (Cmd, Entrypoint, Health):
                later.add(kind)


def workdir_relative_path(subject: Subject) -> Iterator[Remark]:
    """Where a relative directory is depends on the layer below, unless an absolute one is set."""
    for stage in subject.outline.stages:
        is_set = any(isinstance(it, Workdir) for it in subject.meanings_before(stage))
        for statement in stage.body:
            if isinstance(statement.meaning, Workdir):
                path = statement.meaning.path.strip("\"'")
                if not is_set and not path.startswith(("/", "$")):
                    yield statement.instruction, f"{path} is relative to what the layer below sets"
                is_set = True


def expose_proto_casing(subject: Subject) -> Iterator[Remark]:
    """Protocols are in lower case."""
    for statement in subject.statements:
        if isinstance(statement.meaning, Expose):
            for port in statement.meaning.ports:
                protocol = port.partition("/")[2]
                if "$" not in protocol and protocol != protocol.lower():
                    yield statement.instruction, f"the protocol of {port} is not in lower case"


def copy_ignored_file(subject: Subject) -> Iterator[Remark]:
    """What .dockerignore leaves out cannot be copied."""
    for statement in subject.statements:
        meaning = statement.meaning
        if not isinstance(meaning, Copy) or meaning.origin:
            continue
        for source in meaning.sources:
            path = source.strip("/").removeprefix("./").encode()
            is_plain = not has_wildcard(path) and "$" not in source and not _REMOTE.match(source)
            if is_plain and path not in (b"", b".") and subject.ignored.ignores(path):
                yield statement.instruction, f"{source} is left out by .dockerignore"
