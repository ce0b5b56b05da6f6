from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder.instructions import interpret
from dsec_layers.builder.layerfile import parse
from dsec_layers.builder.meanings import (
    Arg,
    Cmd,
    Command,
    Copy,
    Entrypoint,
    Env,
    Expose,
    From,
    Health,
    Label,
    Layer,
    Maintainer,
    Meaning,
    Run,
    Shell,
    StopSignal,
    User,
    Volume,
    Workdir,
)
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.runconfig import Healthcheck


def meaning_of(text: str) -> Meaning:
    (statement,) = interpret(parse(text.encode(), name="L"))
    return statement.meaning


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("LAYER base a/b", Layer("base", "a/b")),
        ("FROM scratch", From("scratch", None)),
        ("from base/a:1 as Build-1", From("base/a:1", "build-1")),
        ("ARG a", Arg((("a", None),))),
        ("ARG a= b='c d'", Arg((("a", ""), ("b", "'c d'")))),
        ("ENV a=1 b=2", Env((("a", "1"), ("b", "2")))),
        ("ENV a b c", Env((("a", "b c"),))),
        ('LABEL "a b"=c', Label((('"a b"', "c"),))),
        ("RUN a b", Run(Command(("a b",), for_shell=True), "host")),
        ('RUN ["a", "b"]', Run(Command(("a", "b"), for_shell=False), "host")),
        ("RUN --network=none a", Run(Command(("a",), for_shell=True), "none")),
        ("RUN --network=host a", Run(Command(("a",), for_shell=True), "host")),
        ("RUN --network=default a", Run(Command(("a",), for_shell=True), "host")),
        ("WORKDIR /a b", Workdir("/a b")),
        ("USER a:b", User("a:b")),
        ('SHELL ["/bin/bash", "-c"]', Shell(("/bin/bash", "-c"))),
        ('CMD ["a"]', Cmd(Command(("a",), for_shell=False))),
        ("CMD []", Cmd(Command((), for_shell=False))),
        ("FROM --platform=$X a AS b", From("a", "b", "$X")),
        ("EXPOSE 80 $P/udp", Expose(("80", "$P/udp"))),
        ('VOLUME ["/a b", "/c"]', Volume(("/a b", "/c"))),
        ("VOLUME /a /b", Volume(("/a", "/b"))),
        ("STOPSIGNAL SIGINT", StopSignal("SIGINT")),
        ("MAINTAINER A $B", Maintainer("A $B")),
        ("HEALTHCHECK NONE", Health(Healthcheck(test=("NONE",)))),
        ("HEALTHCHECK CMD a  b || c", Health(Healthcheck(test=("CMD-SHELL", "a  b || c")))),
        (
            'HEALTHCHECK --interval=1m0.5s --timeout=1h --retries=3 --start-period=0s CMD ["a"]',
            Health(
                Healthcheck(
                    test=("CMD", "a"),
                    interval_ns=60_500_000_000,
                    timeout_ns=3600 * 10**9,
                    retries=3,
                )
            ),
        ),
        ("ENTRYPOINT exec a", Entrypoint(Command(("exec a",), for_shell=True))),
    ],
)
def test_meanings(text: str, meaning: Meaning) -> None:
    assert meaning_of(text) == meaning


def copy(text: str) -> Copy:
    meaning = meaning_of(text)
    assert isinstance(meaning, Copy)
    return meaning


def test_copy() -> None:
    plain = copy("COPY --from=b --chown=1:2 --chmod=0644 a b /c/")
    assert (plain.sources, plain.destination) == (("a", "b"), "/c/")
    assert (plain.origin, plain.chown, plain.chmod) == ("b", "1:2", "0644")
    assert copy('COPY ["a b", "/c d"]').sources == ("a b",)
    added = copy("ADD a /b")
    assert (added.is_add, added.unpack, added.checksum) == (True, None, None)
    more = copy("ADD --unpack=false --checksum=c --exclude=a --exclude=b --parents --link x y")
    assert (more.unpack, more.checksum, more.excludes) == (False, "c", ("a", "b"))
    assert more.parents
    assert not copy("COPY --parents=false --link=true a b").parents


def test_copy_of_heredocs_and_files() -> None:
    mixed = copy("COPY <<A b <<'C' /d/\n1\nA\n2\nC\n")
    assert [(h.name, h.content, h.expand) for h in mixed.inline] == [
        ("A", "1\n", True),
        ("C", "2\n", False),
    ]
    assert (mixed.sources, mixed.destination) == (("b",), "/d/")


@pytest.mark.parametrize(
    "line",
    [
        "ONBUILD RUN a",
        "HEALTHCHECK a",
        "HEALTHCHECK NONE a",
        "COPPY a b",
        "RUN --mount=type=ssh a",
        "RUN --mount=type=disk,target=/a b",
        "RUN --mount=type=tmpfs,target=/a,mode=1 b",
        "RUN --mount=from=$a,target=/a b",
        "RUN --security=insecure a",
        "RUN --network=some a",
        "ADD --keep-git-dir=true a b",
        "ADD --from=a b c",
        "COPY --checksum=sha256:0 a b",
        "FROM --mount=a base/a",
        "LAYER base",
        "FROM a b",
        "FROM base/a AS 1",
        "SHELL /bin/sh -c",
        "COPY a",
    ],
)
def test_what_is_refused_has_name_line_and_hint(line: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        meaning_of(f"\n\n{line}\n")
    word = line.split()[1].split("=")[0]
    named = word if word.startswith("--") else line.split()[0]
    assert named in caught.value.message
    assert caught.value.where == "L:3"
    assert caught.value.hint


@pytest.mark.parametrize(
    "line",
    [
        "RUN",
        "RUN []",
        'RUN [""]',
        "CMD",
        "ENTRYPOINT",
        "ENV",
        "ENV a",
        "ENV a=1 b",
        "ARG",
        "ARG 1=2",
        "ARG a='",
        "LABEL",
        "USER",
        "EXPOSE",
        "VOLUME",
        "VOLUME []",
        'VOLUME [""]',
        "STOPSIGNAL",
        "MAINTAINER",
        "HEALTHCHECK CMD",
        "HEALTHCHECK --retries=some CMD a",
        "HEALTHCHECK --interval=5 CMD a",
        "HEALTHCHECK --timeout=1us CMD a",
        "HEALTHCHECK --timeout=9999999h CMD a",
        "WORKDIR",
        "COPY --from= a b",
        "RUN --mount=type=cache a",
        "RUN --mount=target=/a,target=/b a",
        "RUN --mount=type=secret a",
        "RUN --mount=target=/a,source a",
        'RUN --mount="target=/a b',
        "COPY --from=a --from=b c d",
        "COPY --link=maybe a b",
        "COPY --exclude a b",
        "COPY --from=a <<E d\nE",
        "FROM",
        "FROM base/a AS",
    ],
)
def test_what_is_malformed(line: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^L:1: {line.split()[0]}: ") as caught:
        meaning_of(line)
    assert caught.value.where == "L:1"


def test_a_misspelt_instruction_gets_a_proposal() -> None:
    with pytest.raises(InvalidInputError) as caught:
        meaning_of("WORKDRI /a")
    assert caught.value.hint == "did you mean WORKDIR?"


_words = st.sampled_from(
    [
        *("EXPOSE", "HEALTHCHECK", "VOLUME", "ADD", "COPY", "RUN", "FROM", "STOPSIGNAL", "CMD"),
        *(
            "--parents",
            "--exclude=a",
            "--chmod=u+x",
            "--mount=type=bind,target=/a",
            "--interval=1s",
        ),
        *(
            "--platform=$x",
            "--checksum=",
            "http://h/a",
            "\\",
            '["a"]',
            "<<E",
            "\nE\n",
            "80/tcp",
            "--",
        ),
    ]
)


@given(st.lists(st.one_of(_words, st.text(max_size=5)), max_size=8).map(" ".join))
def test_any_text_means_something_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidInputError):
        interpret(parse(text.encode(errors="replace"), name="L"))
