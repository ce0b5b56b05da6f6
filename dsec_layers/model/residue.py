"""What was left out of a layer when it was made of a sandbox, as its config attests it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dsec_layers.model.digest import Digest


class DroppedBy(msgspec.Struct, frozen=True):
    """What one rule left out: its name, the version of its patterns, paths, bytes of files."""

    rule: str
    version: int
    paths: int
    bytes: int


class GitScrubbed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A git repository of which only what HEAD needs was kept.

    `path` has no slash in front. `removed` is the sha256 over the removed object ids and names of
    references (see `digest_of`). `shallow`: the commits before HEAD were removed too.
    """

    path: str
    head: str
    objects_removed: int
    references_removed: int
    removed: str
    shallow: bool = False


class Residue(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which rules were on, and what they left out.

    `dropped` lists the rules in the order of their names, those that found nothing too; `kept` are
    rules of this program that were switched off. `digest` is the sha256 over the dropped paths.
    """

    dropped: tuple[DroppedBy, ...] = ()
    kept: tuple[str, ...] = ()
    digest: str = ""
    git: tuple[GitScrubbed, ...] = ()


def digest_of(names: Iterable[bytes]) -> str:
    """The sha256 over names in the order of their bytes, each with a zero byte behind it."""
    return str(Digest.sha256(b"".join(name + b"\0" for name in sorted(names))))
