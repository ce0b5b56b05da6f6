from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.builder.layerfile import HereDoc, parse
from dsec_layers.errors import InvalidInputError


def lines_of(text: str) -> list[tuple[str, str, str]]:
    return [(i.where, i.keyword, i.text) for i in parse(text.encode(), name="L").instructions]


def heredocs_of(text: str) -> tuple[HereDoc, ...]:
    return parse(text.encode()).instructions[0].heredocs


def test_lines_comments_and_positions() -> None:
    text = "\n# comment\n  from base/a \n\n   # more\nRun  echo  # not a comment\n"
    assert lines_of(text) == [
        ("L:3", "FROM", "base/a"),
        ("L:6", "RUN", "echo  # not a comment"),
    ]


def test_continued_lines_drop_comments_and_empty_lines() -> None:
    text = "RUN a \\\n  # comment\n\n    b \\  \n\t#x\n&& c\nUSER x\n"
    assert lines_of(text) == [("L:1", "RUN", "a     b && c"), ("L:7", "USER", "x")]


def test_a_comment_does_not_continue() -> None:
    assert lines_of("# a \\\nUSER x\n") == [("L:2", "USER", "x")]


def test_two_escapes_at_the_end_do_not_continue() -> None:
    assert lines_of("RUN a \\\\\nUSER x") == [("L:1", "RUN", "a \\\\"), ("L:2", "USER", "x")]


def test_the_file_may_end_inside_a_continued_line() -> None:
    assert lines_of("RUN a \\\n") == [("L:1", "RUN", "a")]
    assert lines_of("RUN a \\") == [("L:1", "RUN", "a")]


def test_the_escape_directive() -> None:
    parsed = parse(b"# escape=`\nRUN a `\n  \\b\nUSER x\\\n")
    assert parsed.escape == "`"
    assert [i.text for i in parsed.instructions] == ["a   \\b", "x\\"]


def test_directives_end_with_the_first_other_line() -> None:
    assert parse(b"\n# escape=`\nUSER x").escape == "\\"
    assert parse(b"# comment\n# escape=`\nUSER x").escape == "\\"
    assert parse(b"# syntax=docker/dockerfile:1\n#Escape = `\nUSER x").escape == "`"
    assert parse(b"# escape=`").escape == "`"


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (b"# escape=x\n", "L:1", "escape"),
        (b"# escape=`\n# escape=`\n", "L:2", "twice"),
        (b"# syntax=example.org/other\n", "L:1", "syntax"),
        (b"USER x\nUSER \xff\n", "L:2", "UTF-8"),
        (b"USER x\nUSER \0\n", "L:2", "NUL"),
        (b"USER x\n\nRUN <<EOF\na\nEOF \n", "L:3", "EOF has no end"),
    ],
)
def test_errors_name_their_line(text: bytes, where: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        parse(text, name="L")
    assert caught.value.where == where


def test_crlf_and_byte_order_mark() -> None:
    assert lines_of("\ufeffRUN a \\\r\n b\r\nUSER x\r\n") == [
        ("L:1", "RUN", "a  b"),
        ("L:3", "USER", "x"),
    ]


def test_heredoc_without_quotes() -> None:
    body = "a $x\n\n# kept\n  EOF\n"
    text = f"RUN <<EOF\n{body}EOF\nUSER x\n"
    assert heredocs_of(text) == (HereDoc("EOF", body, body, expand=True),)
    assert lines_of(text)[1] == ("L:7", "USER", "x")


@pytest.mark.parametrize("word", ["'EOF'", '"EOF"', "E'O'F"])
def test_heredoc_with_quotes(word: str) -> None:
    assert heredocs_of(f"RUN <<{word}\na\nEOF\n") == (HereDoc("EOF", "a\n", "a\n", expand=False),)


def test_heredoc_with_stripped_tabs() -> None:
    text = "RUN <<-EOF\n\ta\n\t\tb\n  c\n\tEOF\n"
    (heredoc,) = heredocs_of(text)
    assert heredoc.body == "\ta\n\t\tb\n  c\n"
    assert heredoc.content == "a\nb\n  c\n"


def test_several_heredocs_in_one_instruction() -> None:
    text = "RUN cat <<A - 3<<'B' >out && \\\n  cat <<-C|sh\n1\nA\n2\nB\n\t3\n\tC\nUSER x\n"
    assert [(h.name, h.content, h.expand) for h in heredocs_of(text)] == [
        ("A", "1\n", True),
        ("B", "2\n", False),
        ("C", "3\n", True),
    ]
    assert lines_of(text)[1] == ("L:9", "USER", "x")


@pytest.mark.parametrize(
    "command",
    [
        'RUN echo "<<EOF"',
        'RUN ["<<EOF"]',
        "RUN cat <<<EOF",
        "RUN a<<EOF",
        "ENV a=<<EOF",
        "RUN '<<A",
    ],
)
def test_what_is_no_heredoc(command: str) -> None:
    assert lines_of(f"{command}\nUSER x\n")[1] == ("L:2", "USER", "x")


def test_an_empty_heredoc() -> None:
    assert heredocs_of("COPY <<A <<B /d/\nA\nB\n") == (
        HereDoc("A", "", "", expand=True),
        HereDoc("B", "", "", expand=True),
    )


@given(st.text(alphabet="RUN <E'\"\\\n\t#-`="))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidInputError):
        parse(text.encode())
