import hashlib

import pytest

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.digest import Digest

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize("text", [f"sha256:{HEX}", f"blake3:{HEX}"])
def test_text_and_value_are_the_same(text: str) -> None:
    digest = Digest.parse(text)
    assert str(digest) == text
    assert digest.short == HEX[:12]


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEX,
        f"sha256:{HEX[:-1]}",
        f"sha256:{HEX}0",
        f"sha256:{HEX.upper()}",
        f"md5:{HEX}",
        f"sha256:{HEX}\n",
        f" sha256:{HEX}",
        f"sha512:{HEX}{HEX}",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Digest.parse(text)


def test_sha256_is_that_of_the_bytes() -> None:
    assert Digest.sha256(b"abc").hex == hashlib.sha256(b"abc").hexdigest()
