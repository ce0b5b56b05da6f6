"""URLs of stores in registries, names of images, and where these are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.reference import Reference
from dsec_layers.registry.oci.endpoint import StoreAddress
from dsec_layers.registry.oci.names import is_internal, kept_tag, reference_of, referrers_tag
from dsec_layers.registry.oci.settings import Settings
from dsec_layers.registry.urls import open_store

HEX = "0" * 64


@pytest.mark.parametrize(
    ("url", "origin", "prefix"),
    [
        ("oci://registry.example.com/team/layers", "https://registry.example.com", "team/layers"),
        ("oci://registry.example.com", "https://registry.example.com", ""),
        ("oci+http://127.0.0.1:5000/x", "http://127.0.0.1:5000", "x"),
        ("oci+http://[::1]:5000/x", "http://[::1]:5000", "x"),
        ("oci://docker.io/somebody", "https://registry-1.docker.io", "somebody"),
    ],
)
def test_store_urls(url: str, origin: str, prefix: str) -> None:
    address = StoreAddress.parse(url)
    assert (address.endpoint.origin, address.prefix, address.url) == (origin, prefix, url)
    assert open_store(url).url == url


def test_an_authority_of_its_own(tmp_path: Path) -> None:
    ca = tmp_path / "a b.pem"
    ca.touch()
    address = StoreAddress.parse(f"oci://r.example.com/x?ca={tmp_path}/a%20b.pem")
    assert address.endpoint.verify == str(ca)
    assert StoreAddress.parse(address.url) == address
    with pytest.raises(InvalidInputError, match="no file of certificates"):
        StoreAddress.parse(f"oci://r.example.com/x?ca={tmp_path}/none")


@pytest.mark.parametrize(
    "url",
    [
        *("oci://", "oci:///x", "oci://r/UPPER", "oci://r/x y", "oci://r/x/../y", "oci://r/x?y=1"),
        *(
            "oci://r/x#y",
            "oci://r/x?ca",
            "oci://r:port/x",
            "oci://user:secret@r/x",
            "oci://r//x//y",
        ),
    ],
)
def test_what_is_no_url_of_a_store(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        StoreAddress.parse(url)
    assert caught.value.hint or "certificates" in caught.value.message
    assert "secret" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "name", "base"),
    [
        ("python", "docker.io/library/python:latest", "docker.io/library/python:latest"),
        ("a/b:1", "docker.io/a/b:1", "docker.io/a/b:1"),
        ("index.docker.io/a/b", "docker.io/a/b:latest", "docker.io/a/b:latest"),
        ("localhost/a", "localhost/a:latest", "localhost/a:latest"),
        ("localhost:5000/a/b:c", "localhost:5000/a/b:c", "localhost_5000/a/b:c"),
        ("r.example.com/a", "r.example.com/a:latest", "r.example.com/a:latest"),
        (
            f"x@sha256:{HEX}",
            f"docker.io/library/x@sha256:{HEX}",
            f"docker.io/library/x:sha256.{HEX}",
        ),
        (
            f"x:1@sha256:{HEX}",
            f"docker.io/library/x:1@sha256:{HEX}",
            f"docker.io/library/x:sha256.{HEX}",
        ),
    ],
)
def test_names_of_images(text: str, name: str, base: str) -> None:
    image = ImageName.parse(text)
    assert str(image) == name
    assert image.base == Reference.parse(f"base/{base}")
    assert ImageName.parse(name) == image


@pytest.mark.parametrize(
    "text",
    ["", "UPPER", "a/B", "a:", "a:b:c", "a@sha256:1", "-a", "a//b", "https://a/b", "a b", "."],
)
def test_what_names_no_image(text: str) -> None:
    with pytest.raises(InvalidInputError):
        ImageName.parse(text)


def test_tags_of_the_store_itself() -> None:
    for tag in (kept_tag(f"sha256:{HEX}"), referrers_tag(f"sha256:{HEX}")):
        assert is_internal(tag)
        assert reference_of("base/x", tag) is None
    assert not is_internal("keep-it")
    assert reference_of("base/x", "1") == Reference.parse("base/x:1")
    assert reference_of("somebody/x", "1") is None


def places(text: str, image: str, home: Path) -> list[str]:
    (home / "registries.toml").write_text(text)
    found = Settings.load(home, {}).places(ImageName.parse(image))
    return [f"{place.endpoint.origin}/{place.path}" for place in found]


def test_mirrors(tmp_path: Path) -> None:
    assert Settings.load(tmp_path, {}) == Settings()
    text = """
[registry."docker.io"]
mirrors = ["m1.example.com/hub", "m2.example.com"]
[registry."docker.io/lib"]
mirrors = ["m3.example.com:5000/lib"]
[registry."m1.example.com"]
plain_http = true
"""
    assert places(text, "python", tmp_path) == [
        "http://m1.example.com/hub/library/python",
        "https://m2.example.com/library/python",
        "https://registry-1.docker.io/library/python",
    ]
    assert places(text, "lib/x", tmp_path) == [
        "https://m3.example.com:5000/lib/x",
        "https://registry-1.docker.io/lib/x",
    ]
    assert places(text, "r.example.com/x", tmp_path) == ["https://r.example.com/x"]


@pytest.mark.parametrize("text", ["[registry", "[registry.x]\nmirror = []", "[x]\n", "\xff"])
def test_settings_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInputError, match=r"file\.toml"):
        Settings.load(tmp_path, {"DSEC_REGISTRIES": str(path)})


def test_settings_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no file"):
        Settings.load(tmp_path, {"DSEC_REGISTRIES": str(tmp_path / "none")})
