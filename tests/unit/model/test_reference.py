import pytest

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind, Reference

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("base/debian", Reference(Kind.BASE, "debian", "latest")),
        ("base/debian:12", Reference(Kind.BASE, "debian", "12")),
        (
            "workspace/swe/sphinx-9658:v3",
            Reference(Kind.WORKSPACE, "swe/sphinx-9658", "v3"),
        ),
        ("toolkit/a@" + DIGEST, Reference(Kind.TOOLKIT, "a", "", Digest.parse(DIGEST))),
        ("env/a:t@" + DIGEST, Reference(Kind.ENV, "a", "t", Digest.parse(DIGEST))),
    ],
)
def test_references_parse(text: str, expected: Reference) -> None:
    assert Reference.parse(text) == expected
    assert Reference.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "debian",
        "image/debian",
        "base/",
        "base/Debian",
        "base/a//b",
        "base/../a",
        "base/a:",
        "base/a:.hidden",
        "base/a:" + "t" * 129,
        "base/a@sha256:ab",
        "base/a@blake3:" + "ab" * 32,
        "base/a\n",
        "base/" + "a" * 600,
    ],
)
def test_malformed_references_are_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        Reference.parse(text)
    assert "kind/name" in (raised.value.hint or "")


def test_pinning_keeps_the_tag() -> None:
    pinned = Reference.parse("base/debian:12").pinned(Digest.parse(DIGEST))
    assert str(pinned) == f"base/debian:12@{DIGEST}"
    assert pinned.repository == "base/debian"


def test_kinds_stack_base_first() -> None:
    assert sorted([Kind.TOOLKIT, Kind.BASE, Kind.WORKSPACE], key=lambda kind: kind.rank) == [
        Kind.BASE,
        Kind.WORKSPACE,
        Kind.TOOLKIT,
    ]
