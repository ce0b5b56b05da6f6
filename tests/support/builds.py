"""Builds for tests: layers that are directories, small requests, and trees that can be compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsec_layers.builder.build import build
from dsec_layers.builder.events import BuildEvent, StepCached, StepOutput, StepStarted
from dsec_layers.builder.layers import Image, OpenLayer, ParentLayer, no_image
from dsec_layers.builder.request import BuildRequest, BuildResult
from dsec_layers.errors import NotFoundError
from dsec_layers.model.content import Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import Entry, EntryKind
from dsec_layers.sources.directory import walk
from dsec_layers.sources.upper import walk_upper


@dataclass(frozen=True)
class FolderLayer:
    """A layer that is a folder of this machine: a whole tree, or an overlay upper over `below`."""

    folder: Path
    run: RunConfig = field(default_factory=RunConfig)
    below: str | None = None


@dataclass(frozen=True)
class _Opened:
    lowers: Sequence[Path]
    layer: FolderLayer

    def source(self) -> Source:
        return walk_upper(self.layer.folder) if self.layer.below else walk(self.layer.folder)


class FolderLayers:
    """A LayerProvider over folders, by repository; it counts how often a layer was opened."""

    def __init__(self, layers: Mapping[str, FolderLayer]) -> None:
        self.layers = dict(layers)
        self.opened = 0

    def resolve(self, reference: Reference) -> ParentLayer:
        layer = self.layers.get(reference.repository)
        if layer is None:
            raise NotFoundError(f"no layer {reference}")
        digest = self.digest(reference.repository)
        base = str(self.digest(layer.below)) if layer.below else ""
        return ParentLayer(reference, digest, Kind(reference.kind), layer.run, layer.run, base)

    def image(self, image: Image) -> ParentLayer:
        return no_image(image)

    @contextlib.contextmanager
    def open(self, layer: ParentLayer) -> Iterator[OpenLayer]:
        self.opened += 1
        found = self.layers[layer.reference.repository]
        lowers = [found.folder]
        if found.below:
            lowers.append(self.layers[found.below].folder)
        yield _Opened(lowers, found)

    def digest(self, repository: str) -> Digest:
        """The digest that a layer of this repository has."""
        return Digest.sha256(repository.encode())


@dataclass
class Built:
    """What a build gave: its result, its tree and files by path, its events."""

    result: BuildResult
    entries: dict[str, Entry]
    files: dict[str, bytes]
    events: list[BuildEvent]

    @property
    def output(self) -> str:
        """The output of all steps."""
        parts = [event.data for event in self.events if isinstance(event, StepOutput)]
        return b"".join(parts).decode()

    @property
    def cached(self) -> list[bool]:
        """For each step whether it came from the cache."""
        numbers = [event.number for event in self.events if isinstance(event, StepStarted)]
        cached = {event.number for event in self.events if isinstance(event, StepCached)}
        return [number in cached for number in numbers]


@dataclass
class Workshop:
    """A folder with a context, a step cache, and layers to build on."""

    folder: Path
    layers: FolderLayers

    @property
    def context(self) -> Path:
        """The context folder."""
        return self.folder / "context"

    @property
    def home(self) -> Path:
        """The step cache."""
        return self.folder / "home"

    def write(self, path: str, content: str = "", mode: int = 0o644) -> Path:
        """A file of the context."""
        place = self.context / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        place.chmod(mode)
        return place

    def request(
        self, text: str, *, head: str = "LAYER base x\n", **options: object
    ) -> BuildRequest:
        """A request for a Layerfile with this text."""
        layerfile = self.folder / "Layerfile"
        layerfile.write_text(head + text)
        self.context.mkdir(exist_ok=True)
        values = {"layerfile": layerfile, "context": self.context, "home": self.home, **options}
        return BuildRequest(**values)  # type: ignore[arg-type]

    def build(self, text: str, *, head: str = "LAYER base x\n", **options: object) -> Built:
        """Build and read everything of the result."""
        events: list[BuildEvent] = []
        request = self.request(text, head=head, **options)
        with build(request, self.layers, events.append) as result:
            files = {
                path.decode(errors="surrogateescape"): Path(
                    content.path.decode(errors="surrogateescape")
                ).read_bytes()
                for path, content in result.source.contents.items()
            }
            entries = {
                entry.path.decode(errors="surrogateescape"): entry for entry in result.source.tree
            }
        return Built(result, entries, files, events)

    def leftovers(self) -> list[Path]:
        """What is left in the folder where steps are carried out."""
        work = self.home / "work"
        return sorted(work.iterdir()) if work.is_dir() else []


def names(built: Built, below: str = "") -> list[str]:
    """The paths below a directory of the result that are not directories."""
    return [
        path
        for path, entry in built.entries.items()
        if entry.kind is not EntryKind.DIRECTORY and path.startswith(below)
    ]
