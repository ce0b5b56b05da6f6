"""docs/residue.md says what the rules say."""

from __future__ import annotations

from pathlib import Path

from dsec_layers.builder.residuerules import choose
from scripts import rulelist


def test_the_page_is_current() -> None:
    assert rulelist.PAGE.read_text() == rulelist.render(), "run python -m scripts.rulelist"


def test_its_example_is_a_file_of_rules(tmp_path: Path) -> None:
    lines = rulelist.TAIL.splitlines()
    example = "\n".join(line[4:] for line in lines if line.startswith("    "))
    (tmp_path / "rules.toml").write_text(example)
    rules = choose(file=tmp_path / "rules.toml")
    assert [rule.name for rule in rules.rules][-2:] == ["answers", "task"]
