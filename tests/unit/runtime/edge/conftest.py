"""A tier double and a clock for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.edge_doubles import HandClock, TierDouble, end_all


@pytest.fixture
def tier() -> Iterator[TierDouble]:
    made = TierDouble()
    yield made
    end_all(made)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
