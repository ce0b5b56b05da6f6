"""The SDK without `await` has what the SDK has."""

from __future__ import annotations

import inspect

import pytest

from dsec_runtime import sdk
from dsec_runtime.sdk import sync
from scripts import syncface


def test_the_module_is_current() -> None:
    assert syncface.PATH.read_text() == syncface.render(), "run python -m scripts.syncface"


@pytest.mark.parametrize("face", syncface.FACES)
def test_nothing_is_missing_and_nothing_is_to_be_awaited(face: type) -> None:
    made = getattr(sync, face.__name__)
    wanted = {name for name in dir(face) if not name.startswith("_")}
    wanted -= {name for kind, name in syncface.LEFT_OUT if kind == face.__name__}
    assert wanted <= set(dir(made))
    for name in wanted:
        assert not inspect.iscoroutinefunction(getattr(made, name))


def test_errors_pass_through() -> None:
    client = sync.DSecClient("unix:///nowhere", patience_s=0.0)
    with pytest.raises(Exception, match="no edge answers"), client:
        pass
    assert isinstance(client._inner, sdk.DSecClient)
