"""Two programs that build Dockerfiles: ours by its API, and buildah."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.api import building, exporting, importing, managing
from dsec_layers.api.buildrequests import BuildOptions
from dsec_layers.api.filedata import FileData, Place
from dsec_layers.api.opened import opened
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import DsecError
from dsec_layers.exporting.compression import Compression
from dsec_layers.exporting.destination import Destination
from dsec_layers.linux import mount
from dsec_layers.linux.ocispec import DEFAULT_PATH
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import Entry, EntryKind
from dsec_layers.sources.directory import walk
from tests.support import bases, conformance
from tests.support.conformance import Case, Image
from tests.support.trees import content_digest

_PLAIN: Final = exporting.ExportOptions(compression=Compression.NONE)
_SMALL: Final = 4096
BUILT: Final = Reference.parse("base/built:latest")


class PeerFailedError(Exception):
    """The peer refused; the message is what it said."""


@dataclass(frozen=True)
class Ours:
    """Builds with a home of its own, which keeps the steps of all cases."""

    bench: Workbench
    scratch: Path

    def add_base(self, name: str, folder: Path, image: Path) -> None:
        """Make a root file system known as `base/<name>`, and an OCI layout of it in `image`."""
        bare, reference = (
            Reference.parse(f"base/{each}:latest") for each in (f"bare-{name}", name)
        )
        importing.import_(self.bench, str(folder), bare)
        image.mkdir()
        layerfile = image / "Layerfile"
        layerfile.write_text(f"FROM {bare}\nENV PATH={DEFAULT_PATH}\n")
        options = BuildOptions(layerfile=layerfile)
        building.build(self.bench, image, reference, options)
        exporting.export(self.bench, reference, Destination.parse(f"oci:{image}/image:v1"), _PLAIN)

    def close(self) -> None:
        """Stop the daemon that the builds have started."""
        managing.client(self.bench).stop(force=True)

    def build(self, case: Case, context: Path, args: Mapping[str, str]) -> Image:
        """Build a case. Raises what `building.build` raises."""
        options = BuildOptions(
            layerfile=case.dockerfile,
            target=case.target,
            args=args,
            secrets={name: text.encode() for name, text in case.secrets.items()},
            contexts={name: context / path for name, path in case.contexts.items()},
        )
        building.build(self.bench, context, BUILT, options)
        entries, contents = self._read()
        return Image(entries, contents, self._config())

    def _read(self) -> tuple[dict[bytes, Entry], dict[bytes, bytes]]:
        entries: dict[bytes, Entry] = {}
        contents: dict[bytes, bytes] = {}
        with opened(self.bench, self.bench.stack(BUILT).layers) as (layer,):
            data = FileData()
            for entry in layer.tree:
                if entry.kind is EntryKind.FILE:
                    content = b"".join(data.stream(Place(layer, entry)))
                    entry = _with_content(entry, content, contents)
                entries[entry.path] = entry
        return entries, contents

    def _config(self) -> dict[str, object]:
        """That of the image which other engines get."""
        target = self.scratch / "exported"
        try:
            destination = Destination.parse(f"oci:{target}:v1")
            row = exporting.export(self.bench, BUILT, destination, _PLAIN)
            blob = target / "blobs/sha256" / row.image_id.removeprefix("sha256:")
            return _normal(json.loads(blob.read_bytes())["config"])
        finally:
            shutil.rmtree(target, ignore_errors=True)


@dataclass(frozen=True)
class Buildah:
    """Builds with a storage of its own below `folder`; `close` removes it."""

    folder: Path

    def add_base(self, name: str, image: Path) -> None:
        """Make the image in `image` known as `base/<name>`."""
        found = self._run("pull", "--quiet", f"oci:{image}/image:v1").strip()
        self._run("tag", found, f"base/{name}")

    def build(self, case: Case, context: Path, args: Mapping[str, str]) -> Image:
        """Build a case. Raises PeerFailedError."""
        try:
            self._run("build", *self._options(case, context, args), "--tag", "built", context)
            name = self._run("from", "--pull-never", "built").strip()
            entries, contents = self._read(Path(self._run("mount", name).strip()))
            told = json.loads(self._run("inspect", "--type", "image", "built"))
            return Image(entries, contents, _normal(told["Docker"]["config"]))
        finally:
            self._run("rm", "--all")

    def close(self) -> None:
        """Remove the storage with its mounts."""
        self._run("rm", "--all")
        for found in reversed(list(mount.mount_points())):
            if Path(found.target).is_relative_to(self.folder.resolve()):
                mount.unmount(Path(found.target))
        shutil.rmtree(self.folder)

    def _options(self, case: Case, context: Path, args: Mapping[str, str]) -> Iterator[str | Path]:
        yield from ("--file", case.peer_dockerfile, "--isolation", "chroot", "--format", "docker")
        yield from ("--identity-label=false", "--layers=false")
        if case.target:
            yield from ("--target", case.target)
        for name, value in args.items():
            yield from ("--build-arg", f"{name}={value}")
        for name, path in case.contexts.items():
            yield from ("--build-context", f"{name}={context / path}")
        for name, text in case.secrets.items():
            place = self.folder / f"secret-{name}"
            place.write_text(text)
            yield from ("--secret", f"id={name},src={place}")

    def _read(self, root: Path) -> tuple[dict[bytes, Entry], dict[bytes, bytes]]:
        entries: dict[bytes, Entry] = {}
        contents: dict[bytes, bytes] = {}
        for entry in walk(root).tree:
            if entry.kind is EntryKind.FILE:
                content = (root / entry.path.decode(errors="surrogateescape")).read_bytes()
                entry = _with_content(entry, content, contents)
            entries[entry.path] = entry
        return entries, contents

    def _run(self, command: str, *words: str | Path) -> str:
        storage, state = self.folder / "storage", self.folder / "run"
        places: Sequence[str | Path] = ("--root", storage, "--runroot", state)
        scratch = self.folder / "tmp"  # where its cache mounts live on
        scratch.mkdir(exist_ok=True)
        done = subprocess.run(
            ["buildah", *places, "--storage-driver", "overlay", command, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        if done.returncode:
            raise PeerFailedError(done.stderr[-2000:])
        return done.stdout


def _with_content(entry: Entry, content: bytes, small: dict[bytes, bytes]) -> Entry:
    if len(content) <= _SMALL:
        small[entry.path] = content
    return msgspec.structs.replace(entry, digest=content_digest(content))


def _normal(config: Mapping[str, object]) -> dict[str, object]:
    """A configuration in one form: variables by name, sets as sorted lists, nothing empty."""
    wanted = {name: config.get(name) or None for name in _MEMBERS}
    env = wanted.pop("Env") or []
    assert isinstance(env, list)
    wanted["Env"] = dict(each.split("=", 1) for each in env)
    for name in ("ExposedPorts", "Volumes"):
        wanted[name] = sorted(wanted[name] or {})  # type: ignore[call-overload]
    wanted["Env"] = dict(sorted(wanted["Env"].items()))  # type: ignore[attr-defined]
    return {name: value for name, value in wanted.items() if value}


@dataclass(frozen=True)
class Builders:
    """Both, and when the first was made: what has a later time was made by a build."""

    folder: Path
    ours: Ours
    peer: Buildah
    began_ns: int
    bases: set[str] = field(default_factory=set)

    def differences(self, case: Case, context: Path) -> list[str]:
        """Build a case with both; how the images differ, or that one refuses, a line each."""
        conformance.prepare(case, context)
        self._need_bases(case.dockerfile.read_text())
        with conformance.served(case) as args:
            mine, theirs = self._ours(case, context, args), self._peers(case, context, args)
        if isinstance(mine, Image) and isinstance(theirs, Image):
            return conformance.differences(mine, theirs, self.began_ns)
        if isinstance(mine, str) and isinstance(theirs, str):
            is_meant = case.refused is not None and re.search(case.refused, mine)
            return [] if is_meant else [f"build: {mine} | {theirs}"]
        one, two = (each if isinstance(each, str) else "done" for each in (mine, theirs))
        return [f"build: {one} | {two.partition(':')[0]}"]

    def _need_bases(self, dockerfile: str) -> None:
        """The small base, and others that a Dockerfile names."""
        for name, make in bases.BASES.items():
            if name not in self.bases and (name == "small" or f"base/{name}" in dockerfile):
                root, image = self.folder / name, self.folder / f"{name}-image"
                make(root)
                self.ours.add_base(name, root, image)
                self.peer.add_base(name, image)
                self.bases.add(name)

    def _ours(self, case: Case, context: Path, args: Mapping[str, str]) -> Image | str:
        try:
            return self.ours.build(case, context, args)
        except DsecError as error:
            return re.sub(r".*?Dockerfile:[0-9]+: ", "", error.message)

    def _peers(self, case: Case, context: Path, args: Mapping[str, str]) -> Image | str:
        try:
            return self.peer.build(case, context, args)
        except PeerFailedError as error:
            print(error)  # shown when the test fails
            return f"refused: {error}"


@contextlib.contextmanager
def both(folder: Path) -> Iterator[Builders]:
    """Both builders until the context ends; `folder` is a new one for them."""
    began_ns = time.time_ns()
    ours, peer = Ours(Workbench(folder / "home"), folder), Buildah(folder / "peer")
    peer.folder.mkdir()
    with contextlib.closing(peer), contextlib.closing(ours):
        yield Builders(folder, ours, peer, began_ns)


_MEMBERS: Final = (
    *("Env", "Cmd", "Entrypoint", "User", "WorkingDir", "Labels", "ExposedPorts", "Volumes"),
    *("StopSignal", "Healthcheck", "Shell"),
)
