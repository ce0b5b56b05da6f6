"""From URLs to stores."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, DsecError, InvalidInputError, StoreError
from dsec_layers.registry import marker, urls
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.local import Home


@pytest.mark.parametrize("name", ["plain", "with space", "100%", "ä", "a?b#c"])
def test_a_url_names_its_store_again(tmp_path: Path, name: str) -> None:
    url = DirectoryStore(tmp_path / name).url
    store = urls.open_store(url, create=True)
    assert isinstance(store, DirectoryStore)
    assert store.root == tmp_path / name
    assert urls.open_store(store.url).url == url


def test_a_path_is_no_url_but_nearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (str(tmp_path / "a b"), "a b"):
        with pytest.raises(InvalidInputError) as refused:
            urls.open_store(path)
        assert refused.value.hint is not None
        assert refused.value.hint.startswith(f"write dir://{tmp_path}/a%20b, ")


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    for scheme in ("dir", "threefs"):
        with pytest.raises(StoreError, match="there is no store"):
            urls.open_store(f"{scheme}://{tmp_path}/absent")
        with pytest.raises(StoreError):
            urls.open_store(f"{scheme}://{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_3fs_mount_point_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        urls.open_store(f"threefs://{tmp_path}/unmounted", create=True)
    assert list(tmp_path.iterdir()) == []
    store = urls.open_store(f"threefs://{tmp_path}", create=True)
    assert store.url == f"threefs://{tmp_path}"


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for create in (False, True):
        with pytest.raises(StoreError):
            urls.open_store(f"dir://{tmp_path}/file", create=create)


def test_no_store_is_made_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.odt").write_bytes(b"chapter one")
    for scheme in ("dir", "threefs"):
        with pytest.raises(InvalidInputError, match="thesis") as caught:
            urls.open_store(f"{scheme}://{tmp_path}", create=True)
        assert "empty directory" in (caught.value.hint or "")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.odt"]


def test_a_store_is_made_in_a_new_file_system_and_beside_another_who_makes_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "tmp-1-of-another").write_bytes(b"")
    urls.open_store(f"dir://{tmp_path}", create=True)
    (tmp_path / "more").write_bytes(b"")
    urls.open_store(f"dir://{tmp_path}", create=True)


def test_layouts_of_the_future_and_corrupt_markers(tmp_path: Path) -> None:
    urls.open_store(f"dir://{tmp_path}", create=True)
    for data, error in ((b'{"layout":2}', StoreError), (b"{", CorruptError)):
        (tmp_path / marker.MARKER).unlink()
        (tmp_path / marker.MARKER).write_bytes(data)
        with pytest.raises(error, match=r"layout|malformed"):
            urls.open_store(f"dir://{tmp_path}", create=True)


@pytest.mark.parametrize(
    "url",
    [
        *("", "x", "/path", "dir:/x", "dir://relative/x", "dir:///x?y=1", "dir:///x#y", "dir://"),
        *("dir://[", "dir://[::/x", "dir:///a%00b", "threefs://]"),
    ],
)
def test_malformed_urls(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        urls.open_store(url)
    assert caught.value.hint


@pytest.mark.parametrize("url", ["ftp://host/x", "http://host/x"])
def test_unknown_schemes_are_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidInputError, match=url.split(":")[0]) as caught:
        urls.open_store(url)
    assert "dir://" in (caught.value.hint or "")


PLUGIN = """
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.urls import directory_path, register
register("testplugin", lambda url, create: DirectoryStore.open(directory_path(url), create=create))
"""


def test_a_plug_in_is_imported_when_its_scheme_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dsec_test_plugin.py").write_text(PLUGIN)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(urls, "_openers", dict(urls._openers))
    with pytest.raises(InvalidInputError):
        urls.open_store(f"testplugin://{tmp_path}/store", create=True)
    monkeypatch.setenv(urls.PLUGINS_VARIABLE, "dsec_test_plugin")
    assert urls.open_store(f"testplugin://{tmp_path}/store", create=True)
    monkeypatch.setenv(urls.PLUGINS_VARIABLE, "dsec_no_such_plugin")
    with pytest.raises(DsecError, match="dsec_no_such_plugin"):
        urls.open_store("other:///x")


def test_the_local_home(tmp_path: Path) -> None:
    home = Home.default({"DSEC_HOME": str(tmp_path / "state")})
    store = home.open_store()
    assert store.root == tmp_path / "state" / "store"
    assert home.open_store().url == store.url
    folders = {home.chunks, home.metadata, home.builder, home.run, store.root}
    assert len(folders) == 5
    assert all(folder.is_relative_to(tmp_path / "state") for folder in folders)
    assert Home.default({}).root.is_absolute()
