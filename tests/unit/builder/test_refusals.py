"""What the documentation says we refuse is refused, with its line."""

from __future__ import annotations

import pytest

from dsec_layers.builder.layerfile import parse
from dsec_layers.builder.layers import ParentLayer
from dsec_layers.builder.plan import make_plan
from dsec_layers.builder.stepmaking import Options
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from tests.support.differing import Row, table


def resolve(reference: Reference) -> ParentLayer:
    if reference.name != "small":
        raise NotFoundError(f"no layer {reference}")
    digest = Digest.sha256(str(reference).encode())
    return ParentLayer(reference, digest, reference.kind, RunConfig(), RunConfig(), "")


@pytest.mark.parametrize("row", table()["refused"], ids=lambda row: row["what"])
def test_it_is_refused(row: Row) -> None:
    options = Options(kind="base", name="x")
    with pytest.raises(InvalidInputError) as caught:
        make_plan(parse(row["dockerfile"].encode(), name="D"), options, resolve, name="D")
    assert row["message"] in caught.value.message
    assert caught.value.where.startswith("D:")  # type: ignore[union-attr]
