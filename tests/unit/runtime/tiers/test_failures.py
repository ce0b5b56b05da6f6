"""Whose fault an error is."""

from __future__ import annotations

import pytest

from dsec_layers import errors as layers
from dsec_runtime import errors
from dsec_runtime.tiers.container import failures


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (layers.NotFoundError("x"), errors.UnknownSandboxError),
        (layers.InvalidInputError("x"), errors.InvalidRequestError),
        (layers.NoSpaceError("x"), errors.OverloadedError),
        (layers.CapabilityMissingError("x"), errors.UnsupportedError),
        (layers.BusyError("x"), errors.StateConflictError),
        (layers.CorruptError("x"), errors.CreationFailedError),
        (layers.StoreError("x"), errors.CreationFailedError),
        (OSError(5, "x"), errors.CreationFailedError),
        (TimeoutError("x"), errors.CreationFailedError),
        (errors.OverloadedError("x"), errors.OverloadedError),
        (errors.CreationFailedError("x"), errors.CreationFailedError),
    ],
)
def test_all_that_goes_wrong_is_told_as_ours(
    raised: Exception, told: type[errors.SandboxError]
) -> None:
    with pytest.raises(told, match="x") as caught, failures.creating("box"):
        raise raised
    assert type(caught.value) is told


def test_a_mistake_of_ours_is_not_dressed_up() -> None:
    with pytest.raises(ZeroDivisionError), failures.creating("box"):
        raise ZeroDivisionError
