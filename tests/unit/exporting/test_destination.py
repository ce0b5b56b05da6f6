from pathlib import Path

import pytest

from dsec_layers.errors import InvalidInputError
from dsec_layers.exporting.destination import Destination, Format


@pytest.mark.parametrize(
    ("text", "format_", "expected"),
    [
        ("out", None, Destination(Format.OCI, Path("out"))),
        ("a:b", None, Destination(Format.OCI, Path("a:b"))),
        ("out.tar", None, Destination(Format.OCI_ARCHIVE, Path("out.tar"))),
        ("out.tar", Format.DOCKER_ARCHIVE, Destination(Format.DOCKER_ARCHIVE, Path("out.tar"))),
        ("out.tar", Format.OCI, Destination(Format.OCI, Path("out.tar"))),
        ("oci:out", None, Destination(Format.OCI, Path("out"))),
        ("oci:out:v1", Format.OCI, Destination(Format.OCI, Path("out"), "v1")),
        ("oci-archive:x.tar:v1", None, Destination(Format.OCI_ARCHIVE, Path("x.tar"), "v1")),
        (
            "docker-archive:/x:a.b:5/c:v1",
            None,
            Destination(Format.DOCKER_ARCHIVE, Path("/x"), "a.b:5/c:v1"),
        ),
    ],
)
def test_destinations(text: str, format_: Format | None, expected: Destination) -> None:
    assert Destination.parse(text, format_) == expected


@pytest.mark.parametrize("text", ["", "oci:", "oci::v1", "oci:x:v 1", "oci:x:-v", "a\0b"])
def test_what_is_no_destination(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Destination.parse(text)


def test_two_formats() -> None:
    with pytest.raises(InvalidInputError, match="not of the format docker-archive"):
        Destination.parse("oci:x", Format.DOCKER_ARCHIVE)
