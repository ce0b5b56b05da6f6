"""What a sandbox is made of: the directory that it writes to, and the layers below."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsec_layers.api.managing import manager
from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import VIEW
from dsec_layers.errors import InvalidInputError, NotFoundError, SignatureError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.linux import mount, overlays
from dsec_layers.model.reference import Kind, Reference

_LAYER = re.compile(r"[0-9a-f]{64}")
_BASE_HINT = "name what it lies on: --base env/NAME:TAG, or a layer"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """`layers` are lowest first, the base among them first. `target`: where it is mounted now.

    `lent`: it is mounted by somebody else, whose it stays; nothing writes to it now.
    """

    upper: Path
    layers: tuple[MountLayer, ...]
    target: Path | None
    lent: bool = False

    @property
    def base(self) -> MountLayer:
        """The lowest layer."""
        return self.layers[0]

    def of_kind(self, kind: Kind) -> list[MountLayer]:
        """The layers of this kind, lowest first."""
        return [layer for layer in self.layers if layer.config.kind is kind]


def find(bench: Workbench, path: Path, base: Reference | None = None) -> Sandbox:
    """The sandbox that is mounted on `path`, or whose upper directory that is.

    A mount of this home knows its layers, and so does an overlay over layers of it; `base` names
    them for others, and where signatures are asked for, which are looked for by name. Raises
    NotFoundError, InvalidInputError, SignatureError, CorruptError or StoreError.
    """
    if bench.trust is not None and base is None:
        raise SignatureError(
            f"signatures are asked for, and {path} does not say what it lies on by name",
            hint=_BASE_HINT,
        )
    where = path.resolve()
    if not where.is_dir():
        raise NotFoundError(f"there is no directory {path}")
    given = bench.stack(base).layers if base else None
    upper, known, target = _known(bench, where)
    if known and given and known != [layer.descriptor.digest for layer in given]:
        raise InvalidInputError(f"{path} does not lie on {base}", hint="leave --base out")
    layers = given or tuple(bench.layer(bench.by_digest(digest)) for digest in known)
    if not layers:
        raise InvalidInputError(f"it is not known what {path} lies on", hint=_BASE_HINT)
    kinds = [layer.config.kind for layer in layers]
    if kinds[0] is not Kind.BASE or kinds.count(Kind.WORKSPACE) > 1:
        names = ", ".join(map(str, layers))
        raise InvalidInputError(f"{path} lies on what is no environment: {names}")
    return Sandbox(upper, layers, target)


def lent(bench: Workbench, upper: Path, digests: Sequence[str]) -> Sandbox:
    """The sandbox that somebody has mounted over the layers with these digests, lowest first.

    Its upper has the owners that the layer is to have. Raises as `find`.
    """
    layers = tuple(bench.layer(bench.by_digest(digest)) for digest in digests)
    return Sandbox(upper, layers, None, lent=True)


@contextlib.contextmanager
def shown(bench: Workbench, sandbox: Sandbox, lowers: Sequence[Path], work: Path) -> Iterator[Path]:
    """Where all of the sandbox is seen; one that is not mounted is for the length of the block.

    `lowers` are the folders of its layers, lowest first, `work` is a work folder.
    """
    if sandbox.lent:
        view = work / VIEW  # on a path that git(1) can resolve, which a mount without one has not
        view.mkdir()
        mount.mount_overlay(view, [sandbox.upper, *reversed(lowers)])
        try:
            yield view
        finally:
            mount.unmount(view, lazy=True)
        return
    if sandbox.target is not None:
        yield sandbox.target
        return
    with manager(bench).mounted(sandbox.layers, upper=sandbox.upper, name="commit") as rootfs:
        yield rootfs.target


def _known(bench: Workbench, where: Path) -> tuple[Path, list[str], Path | None]:
    """The upper, the digests of the layers as far as they are known, and the mount point."""
    for rootfs in manager(bench).list():
        if where in (rootfs.target, rootfs.upper):
            if rootfs.upper is None:
                raise InvalidInputError(f"{where} is mounted read-only: nothing was changed")
            return rootfs.upper, [str(digest) for digest in rootfs.layers], rootfs.target
    mounted = overlays.overlay_at(where) or overlays.overlay_over(where)
    if mounted is None:
        return where, [], None
    if mounted.upper is None:
        raise InvalidInputError(f"{where} is mounted read-only: nothing was changed")
    return mounted.upper, _digests(mounted.lowers), mounted.target


def _digests(lowers: Sequence[Path]) -> list[str]:
    """Of lower directories that are mounts of layers, lowest first."""
    names = [lower.name for lower in reversed(lowers) if lower.parent.name == "layers"]
    return [f"sha256:{name}" for name in names if _LAYER.fullmatch(name)]
