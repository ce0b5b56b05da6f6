"""docs/errors.md says what errors.py says."""

from __future__ import annotations

import inspect

from dsec_layers import errors
from scripts import errorlist


def test_the_page_is_current() -> None:
    assert errorlist.PAGE.read_text() == errorlist.render(), "run python -m scripts.errorlist"


def test_every_error_has_a_code_of_its_own_and_a_meaning() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.DsecError)
    ]
    codes = [error.exit_code for error in classes]
    assert len(set(codes)) == len(codes)
    assert 2 not in codes, "2 is the command line's own"
    assert all(error.__doc__ for error in classes)
