from __future__ import annotations

import pytest

from dsec_layers.builder.modes import apply_mode, parse_mode
from dsec_layers.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "before", "file", "directory"),
    [
        ("0755", 0o644, 0o755, 0o755),
        ("4711", 0, 0o4711, 0o4711),
        ("u=rwX,go=rX", 0o600, 0o644, 0o755),
        ("u=rwX,go=rX", 0o700, 0o755, 0o755),
        ("a+x", 0o644, 0o755, 0o755),
        ("+x", 0o600, 0o711, 0o711),
        ("go-rwx", 0o755, 0o700, 0o700),
        ("o=", 0o757, 0o750, 0o750),
        ("g=u", 0o741, 0o771, 0o771),
        ("u=rw,g=u,o=g", 0o777, 0o666, 0o666),
        ("u+s,g+s", 0o755, 0o6755, 0o6755),
        ("+t", 0o755, 0o1755, 0o1755),
        ("u-x+w", 0o555, 0o655, 0o655),
        ("ug+s,o+s", 0o700, 0o6700, 0o6700),
        ("a=r", 0o7777, 0o444, 0o444),
    ],
)
def test_modes(text: str, before: int, file: int, directory: int) -> None:
    mode = parse_mode(text)
    assert apply_mode(mode, before, is_directory=False) == file
    assert apply_mode(mode, before, is_directory=True) == directory


@pytest.mark.parametrize("text", ["", "8", "000000", "u", "u=q", "u=rwx,", "x+r", "u=gr", "rwx"])
def test_what_is_no_mode(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid mode"):
        parse_mode(text)
