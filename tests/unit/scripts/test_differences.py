"""docs/dockerfile-differences.md says what the table says, and the table names what there is."""

from __future__ import annotations

from scripts import differences
from tests.integration.builder import test_conformance, test_conformance_copying
from tests.support import conformance, differing


def test_the_page_is_current() -> None:
    assert differences.PAGE.read_text() == differences.render(), "run python -m scripts.differences"


def test_every_difference_has_a_reason_and_cases_that_exist() -> None:
    names = {case.name for case in conformance.cases()}
    for row in differing.table()["difference"]:
        assert row["reason"].strip(), row["title"]
        assert row["right"] in differing.RIGHT, row["title"]
        assert row["cases"], row["title"]
        assert set(row["cases"]) <= names, row["title"]
        assert all(row["cases"].values()), row["title"]


def test_every_topic_is_built() -> None:
    named = {*test_conformance.TOPICS, *test_conformance_copying.TOPICS}
    assert {case.name.partition("/")[0] for case in conformance.cases()} == named
