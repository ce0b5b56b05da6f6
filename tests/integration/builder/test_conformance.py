"""The same Dockerfiles built by us and by buildah give the same images, up to declared differences.

What differs is declared in tests/conformance/differences.toml with the reason and who is right. The
cases about COPY and ADD are in `test_conformance_copying`: the two halves run side by side.
"""

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

TOPICS = ("agents", "config", "run", "stages", "syntax", "variables")


@pytest.mark.parametrize("case", conformance.cases(*TOPICS), ids=lambda case: case.name)
def test_both_build_the_same(case: Case, builders: Builders, tmp_path: Path) -> None:
    found = builders.differences(case, tmp_path / "context")
    assert sorted(found) == differing.declared(case.name)
