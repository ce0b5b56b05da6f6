"""What the mounts of a RUN show: found before the step, as an input, and put in place for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.builder.caches import Caches, folder_name
from dsec_layers.builder.layers import ParentLayer
from dsec_layers.builder.origins import Origins
from dsec_layers.builder.placing import Attributes, place_file, place_tree
from dsec_layers.builder.request import Shown
from dsec_layers.builder.selection import Selected, content_digest, identify, select_one
from dsec_layers.builder.steps import (
    BindMount,
    CacheMount,
    RunStep,
    SecretMount,
    TmpfsMount,
    is_outside,
)
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import inroot
from dsec_layers.linux.ocispec import Bind, Mount, Tmpfs

_STRICTEST: Final = ("locked", "private", "shared")


class Inputs(msgspec.Struct):
    """What the bind mounts of a step show: digests in their order, and what contexts give."""

    digests: list[str] = []
    selected: dict[int, Selected] = {}  # by the number of the mount


def find_inputs(step: RunStep, origins: Origins) -> Inputs:
    """Read what the bind mounts of a step show. Raises InvalidInputError or OSError.

    A layer is not read: its digest and the path decide what is there.
    """
    found = Inputs()
    for number, mount in enumerate(step.mounts):
        if not isinstance(mount, BindMount):
            continue
        if isinstance(mount.origin, ParentLayer):
            found.digests.append(f"{mount.origin.digest} {mount.source}")
            continue
        with contextlib.ExitStack() as stack:
            one = select_one(origins.view(mount.origin, stack), mount.source.strip("/"))
            owned = not is_outside(mount.origin)
            found.digests.append(content_digest(identify([one]), with_owners=owned))
        if is_outside(mount.origin):
            found.selected[number] = one
    return found


class Mounter(msgspec.Struct, frozen=True):
    """Puts in place what mounts show. Secrets are contents by id, `epoch` is in seconds."""

    origins: Origins
    caches: Caches
    secrets: Mapping[str, bytes]
    epoch: int | None

    def show(
        self, step: RunStep, inputs: Inputs, spool: Path, stack: contextlib.ExitStack
    ) -> Shown:
        """All mounts of a step, outer ones first, until `stack` ends. `spool` is a folder for it.

        Raises InvalidInputError (a source or secret that is not there), BusyError, OSError.
        """
        mounts: list[Mount] = []
        env: dict[str, str] = {}
        caches = self._take_caches(step, stack)
        for number, mount in enumerate(step.mounts):
            folder = spool / f"mount-{number}"
            folder.mkdir()
            match mount:
                case BindMount():
                    found = inputs.selected.get(number)
                    source = self._bind_source(mount, found, folder, stack)
                    mounts.append(Bind(source, mount.target, read_only=not mount.writable))
                case CacheMount():
                    data = caches[self._cache_name(mount)]
                    mounts.append(Bind(data, mount.target, read_only=not mount.writable))
                case TmpfsMount():
                    mounts.append(Tmpfs(mount.target, mount.size_bytes))
                case SecretMount():
                    mounts += self._secret(mount, folder, env)
        return Shown(sorted(mounts, key=lambda mount: mount.target.count("/")), env)

    def _bind_source(
        self, mount: BindMount, found: Selected | None, folder: Path, stack: contextlib.ExitStack
    ) -> Path:
        """The context is copied: it looks as COPY would leave it, and no command can change it."""
        if isinstance(mount.origin, int | ParentLayer):
            return self._part(mount.origin, mount.source, stack)
        if found is None:
            raise RuntimeError(f"nothing was found for {mount}")
        mtime_ns = None if self.epoch is None else self.epoch * 10**9
        attributes = Attributes((0, 0), None, mtime_ns)
        if found.is_directory:
            place_tree(folder, "/files", found.source, attributes)
        else:
            place_file(folder, "/", "files", found.source, attributes)
        return folder / "files"

    def _part(self, origin: int | ParentLayer, source: str, stack: contextlib.ExitStack) -> Path:
        place = inroot.locate(self.origins.mounted(origin, stack), source)
        if not place.exists():
            name = self.origins.name(origin)
            raise InvalidInputError(f"{source} is not in {name}, so it cannot be mounted")
        return place

    def _take_caches(self, step: RunStep, stack: contextlib.ExitStack) -> dict[str, Path]:
        """Every cache of a step, once and in one order, so that no two builds wait in turn."""
        wanted: dict[str, CacheMount] = {}
        for mount in step.mounts:
            if isinstance(mount, CacheMount):
                name = self._cache_name(mount)
                other = wanted.get(name, mount)
                wanted[name] = min(other, mount, key=lambda it: _STRICTEST.index(it.sharing))
        return {
            name: stack.enter_context(
                self.caches.use(name, mount.sharing, partial(self._fill, mount))
            )
            for name, mount in sorted(wanted.items())
        }

    def _cache_name(self, mount: CacheMount) -> str:
        if mount.origin is None:
            return folder_name(mount.id)
        return folder_name(mount.id, f"{self.origins.identity(mount.origin)} {mount.source}")

    def _fill(self, mount: CacheMount, data: Path) -> None:
        """What a new cache starts with."""
        if mount.origin is not None:
            with contextlib.ExitStack() as stack:
                source = mount.source.strip("/")
                found = select_one(self.origins.view(mount.origin, stack), source)
                if not found.is_directory:
                    raise InvalidInputError(f"{mount.source} is no directory to start a cache with")
                place_tree(data, "/", found.source, Attributes())
        os.chown(data, *mount.owner)
        data.chmod(mount.mode)

    def _secret(self, mount: SecretMount, folder: Path, env: dict[str, str]) -> Iterator[Bind]:
        content = self.secrets.get(mount.id)
        if content is None:
            if mount.required:
                raise InvalidInputError(
                    f"no secret {mount.id!r} is given",
                    hint=f"build with --secret id={mount.id},src=FILE",
                )
            return
        if mount.variable is not None:
            env[mount.variable] = _text(mount.id, content)
        if mount.target is not None:
            place = folder / "secret"
            place.touch(mode=0o600)
            place.write_bytes(content)
            os.chown(place, *mount.owner)
            place.chmod(mount.mode)
            yield Bind(place, mount.target)


def _text(name: str, content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInputError(f"the secret {name!r} is no text, so no variable can hold it")
    return text
