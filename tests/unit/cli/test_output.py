"""What is printed: results on one stream, everything else on the other."""

import json

import pytest

from dsec_layers.cli.output import Output, printable, size, table
from dsec_layers.errors import BuildError, InvalidInputError, NotFoundError

Captured = pytest.CaptureFixture[str]


def test_a_result_is_text_or_json(capsys: Captured) -> None:
    Output().result({"b": 1, "a": None}, lambda: "text")
    Output(as_json=True).result({"b": 1, "a": None}, lambda: "text")
    out, err = capsys.readouterr()
    first, _, document = out.partition("\n")
    assert first == "text"
    assert json.loads(document) == {"a": None, "b": 1}
    assert err == ""


def test_no_text_prints_nothing(capsys: Captured) -> None:
    Output().result({"a": 1})
    Output().result([], lambda: "")
    assert capsys.readouterr().out == ""


def test_an_error_is_one_line_and_its_hint_another(capsys: Captured) -> None:
    Output().error(NotFoundError("no\nsuch \x1b[31mthing\udcff", hint="look\nelsewhere"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: no\\nsuch \\x1b[31mthing\\udcff\nhint: look\\nelsewhere\n"


def test_the_output_of_a_failed_step_keeps_its_lines(capsys: Captured) -> None:
    Output().error(BuildError("step failed\n    one\n    \x1b[31mtwo"))
    assert capsys.readouterr().err == "error: step failed\n    one\n    \\x1b[31mtwo\n"


@pytest.mark.parametrize("output", [Output(as_json=True), Output(progress="json")])
def test_an_error_as_json(capsys: Captured, output: Output) -> None:
    output.error(InvalidInputError("bad", where="Layerfile:3"))
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err) == {
        "error": "InvalidInputError",
        "message": "Layerfile:3: bad",
        "hint": None,
        "exit_code": 3,
    }


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ("auto", "told\n"),
        ("plain", "told\n"),
        ("quiet", ""),
        ("json", '{"event": "note", "message": "told"}\n'),
    ],
)
def test_notes(capsys: Captured, progress: str, expected: str) -> None:
    Output(progress=progress).note("told")
    out, err = capsys.readouterr()
    assert (out, err) == ("", expected)


def test_tables() -> None:
    made = table(
        ("NAME", "SIZE", "END"), [("a", "10", ""), ("long name", "5", "x")], right=("SIZE",)
    )
    assert made.splitlines() == ["NAME       SIZE  END", "a            10", "long name     5  x"]
    assert table(("A", "B"), []) == "A  B"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_500_000, "1.5 MB"),
        (10**9, "1.0 GB"),
        (10**13, "10000.0 GB"),
    ],
)
def test_sizes(count: int, shown: str) -> None:
    assert size(count) == shown


def test_what_is_printable_stays() -> None:
    assert printable("naïve 文字 \\ '") == "naïve 文字 \\ '"
    assert printable("a\tb\x7f\u202e") == "a\\tb\\x7f\\u202e"
