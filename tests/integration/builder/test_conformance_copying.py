"""COPY and ADD by us and by buildah, up to declared differences: see `test_conformance`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import conformance, differing
from tests.support.builders import Builders
from tests.support.conformance import Case

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.oci,
    pytest.mark.peers("buildah"),
    pytest.mark.slow,
    pytest.mark.timeout(300),  # pip on a busy machine
]

TOPICS = ("add", "copy", "ignore")


@pytest.mark.parametrize("case", conformance.cases(*TOPICS), ids=lambda case: case.name)
def test_both_build_the_same(case: Case, builders: Builders, tmp_path: Path) -> None:
    found = builders.differences(case, tmp_path / "context")
    assert sorted(found) == differing.declared(case.name)
