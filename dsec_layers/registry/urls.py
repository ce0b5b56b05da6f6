"""From a store's URL to the store, and how others add schemes of their own.

Built in are `dir:///path`, `threefs:///path` (the directory where 3FS is mounted, or one below it),
`s3://bucket/prefix?...` (see `s3.location`) and `oci://registry/prefix` (see `oci.endpoint`), which
is `oci+http://` where the registry has no TLS. A program or site adds a scheme by a module that
calls `register` when it is imported; processes that are started for the user, such as the lazy file
system daemon, import the modules named in DSEC_STORE_PLUGINS (separated by commas) before they open
a store of an unknown scheme:

    # mystore.py, found on PYTHONPATH; used with DSEC_STORE_PLUGINS=mystore
    from dsec_layers.registry.urls import register
    register("mystore", lambda url, create: MyStore(url))
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.blobs import Store
from dsec_layers.registry.directory import DirectoryStore

Opener = Callable[[str, bool], Store]
PLUGINS_VARIABLE: Final = "DSEC_STORE_PLUGINS"


def open_store(url: str, *, create: bool = False) -> Store:
    """Open the store named `url`; with `create` an absent one is made where its scheme can.

    Raises InvalidInputError for a malformed URL or an unknown scheme, and StoreError when there is
    no such store.
    """
    scheme = url.partition("://")[0]
    if scheme == url:
        path = quote(str(Path(url or "/path").absolute()))
        raise InvalidInputError(
            f"not the URL of a store: {url!r}",
            hint=f"write dir://{path}, or threefs:// for a mounted 3FS",
        )
    if scheme not in _openers:
        _import_plugins()
    opener = _openers.get(scheme)
    if opener is None:
        known = ", ".join(f"{each}://" for each in sorted(_openers))
        raise InvalidInputError(f"unknown kind of store: {scheme}://", hint=f"known are {known}")
    return opener(url, create)


def register(scheme: str, opener: Opener) -> None:
    """Let `open_store` open URLs of `scheme` by `opener(url, create)`."""
    _openers[scheme] = opener


def directory_path(url: str) -> Path:
    """The path of a `scheme:///absolute/path` URL. Raises InvalidInputError."""
    scheme, _, rest = url.partition("://")
    path = unquote(rest)
    if not rest.startswith("/") or "?" in rest or "#" in rest or "\0" in path:
        raise InvalidInputError(
            f"not the URL of a directory: {url!r}",
            hint=f"write {scheme}:/// and an absolute path; ? and # in it as %3F and %23",
        )
    return Path(path)


def _open_directory(url: str, create: bool) -> Store:
    return DirectoryStore.open(directory_path(url), scheme=url.partition("://")[0], create=create)


def _open_s3(url: str, create: bool) -> Store:
    from dsec_layers.registry.s3.store import S3Store  # boto3 takes its time to import

    return S3Store.open(url, create=create)


def _open_registry(url: str, create: bool) -> Store:
    from dsec_layers.registry.oci.store import OciStore

    return OciStore.open(url)


def _import_plugins() -> None:
    for name in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(",")):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InvalidInputError(
                f"cannot import the store plug-in {name!r}: {error}",
                hint=f"check {PLUGINS_VARIABLE} and PYTHONPATH",
            ) from error


_openers: dict[str, Opener] = {
    "dir": _open_directory,
    "threefs": _open_directory,
    "s3": _open_s3,
    "oci": _open_registry,
    "oci+http": _open_registry,
}
