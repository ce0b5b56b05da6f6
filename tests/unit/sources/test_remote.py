from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.sources.remote import Limits, fetch
from dsec_layers.sources.remotefile import Checksum, file_name
from tests.support.web import Page, Web, serving

SHA256 = "sha256:" + hashlib.sha256(b"body").hexdigest()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as running:
        yield running


def test_a_file_and_its_time(web: Web, tmp_path: Path) -> None:
    modified = {"Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"}
    web.pages["/a"] = Page(b"body", headers=modified)
    web.pages["/b"] = Page(b"body", headers={"Last-Modified": "yesterday"})
    web.pages["/c"] = Page(status=302, headers={"Location": "/a"})
    assert fetch(f"{web.address}/a", tmp_path / "a", Checksum.parse(SHA256)) == 784111777
    assert fetch(f"{web.address}/b", tmp_path / "b") == 0
    assert fetch(f"{web.address}/c", tmp_path / "c") == 784111777
    assert [(tmp_path / name).read_bytes() for name in "abc"] == [b"body"] * 3


def test_a_name_that_is_not_ascii(web: Web, tmp_path: Path) -> None:
    web.pages["/%C3%A4%20%41"] = Page(b"body")
    fetch(f"{web.address}/ä %41", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"body"


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_another_checksum(web: Web, tmp_path: Path, algorithm: str) -> None:
    web.pages["/a"] = Page(b"body")
    digest = hashlib.new(algorithm, b"body").hexdigest()
    fetch(f"{web.address}/a", tmp_path / "a", Checksum.parse(f"{algorithm}:{digest}"))
    web.pages["/a"] = Page(b"other")
    with pytest.raises(CorruptError, match=f"/a has the checksum {algorithm}:"):
        fetch(f"{web.address}/a", tmp_path / "b", Checksum.parse(f"{algorithm}:{digest}"))


def test_bounds(web: Web, tmp_path: Path) -> None:
    web.pages["/a"] = Page(b"body")
    url = f"{web.address}/a"
    fetch(url, tmp_path / "a", limits=Limits(size_bytes=4))
    with pytest.raises(InvalidInputError, match="more than 3 bytes"):
        fetch(url, tmp_path / "b", limits=Limits(size_bytes=3))
    ticks = itertools.count(0, 1000)
    with pytest.raises(TimeoutError, match="more than 900 seconds"):
        fetch(url, tmp_path / "c", limits=Limits(whole_s=900), clock=lambda: next(ticks))


@pytest.mark.parametrize(
    "page",
    [
        Page(status=404),
        Page(status=500),
        Page(status=302, headers={"Location": "file:///etc/passwd"}),
        Page(status=302, headers={"Location": "ftp://127.0.0.1/a"}),
        Page(status=302, headers={"Location": "/a"}),
        Page(status=302, headers={"Location": "http://[/"}),
        Page(status=302, headers={"Location": "http://host:port/"}),
    ],
)
def test_what_cannot_be_fetched(web: Web, tmp_path: Path, page: Page) -> None:
    web.pages["/a"] = page
    with pytest.raises(OSError, match=r"."):
        fetch(f"{web.address}/a", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_answer_that_is_cut_short(web: Web, tmp_path: Path) -> None:
    web.pages["/a"] = Page(b"body", announced=10)
    with pytest.raises(CorruptError, match="6 bytes are missing"):
        fetch(f"{web.address}/a", tmp_path / "a")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://host/a/b.tar?x=/y#z", "b.tar"),
        ("https://host:1/%20a", " a"),
        ("https://host", ""),
        ("https://host/..", ""),
        ("https://host/a%2Fb", ""),
    ],
)
def test_names(url: str, name: str) -> None:
    assert file_name(url) == name


@pytest.mark.parametrize(
    "url", ["ftp://host/a", "http:///a", "http://me:secret@host/a", "http://["]
)
def test_other_urls_are_refused_and_their_passwords_not_told(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        file_name(url)
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "sha256:00", "md5:" + "0" * 32, "sha256:" + "G" * 64])
def test_what_is_no_checksum(text: str) -> None:
    with pytest.raises(ValueError, match="checksum"):
        Checksum.parse(text)
