"""A package, as the database of its package manager describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

MAX_TEXT = 512  # characters of a name or version


class Package(NamedTuple):
    """`kind` is the type of a package URL: deb, apk, rpm, pypi or npm. What is unknown is empty."""

    kind: str
    name: str
    version: str
    arch: str = ""
    source: str = ""
    license: str = ""


class Broken(NamedTuple):
    """A piece of a database that describes no package, and why."""

    problem: str


Parsed = Iterator[Package | Broken]
Parse = Callable[[bytes], Parsed]


def checked(package: Package) -> Package | Broken:
    """The package, unless it lacks a name or version or has one that cannot be."""
    for what, text in (("name", package.name), ("version", package.version)):
        if not text or len(text) > MAX_TEXT or not text.isprintable():
            return Broken(f"a {package.kind} package has no usable {what}: {text[:80]!r}")
    if not (package.license.isprintable() and len(package.license) <= MAX_TEXT):
        return package._replace(license="")
    return package


def plain(data: bytes) -> str:
    """Text of a database; what is no UTF-8 is replaced."""
    return data.decode("utf-8", "replace")
