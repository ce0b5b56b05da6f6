"""What a container borrows from this machine: variables, and files that all lie in one place.

The place is below /dev, which is a file system of the container's own, so it needs no mount point
in the root file system and cannot end up in a layer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from dsec_layers.linux.ocispec import Bind

PLACE = "/dev/host"


@dataclass(frozen=True, slots=True)
class Host:
    """The machine whose settings are lent."""

    root: Path = Path("/")
    home: Path = field(default_factory=Path.home)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def text(self, path: str | Path) -> str:
        """The content of a settings file, empty when there is none or it may not be read."""
        try:
            return self.root.joinpath(str(path).lstrip("/")).read_text(errors="surrogateescape")
        except OSError:
            return ""


@dataclass(slots=True)
class Loan:
    """Collects what is lent: `env` for the command, files written to `folder`, and binds."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    _lent: dict[Path, Bind] = field(default_factory=dict)
    _hidden: list[Bind] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)

    @property
    def binds(self) -> list[Bind]:
        """What to mount, in this order."""
        return [Bind(self.folder, PLACE), *self._lent.values(), *self._hidden]

    def write(self, name: str, content: str) -> str:
        """Lend a file with this content; returns its path in the container."""
        path = self.folder / name
        path.write_text(content, errors="surrogateescape")
        path.chmod(0o644)
        return f"{PLACE}/{name}"

    def path(self, path: Path) -> str:
        """Lend an existing file or folder of this machine; returns its path in the container."""
        source = path.resolve()
        if source not in self._lent:
            name = f"{len(self._lent)}-{source.name}"
            stub = self.folder / name
            stub.mkdir() if source.is_dir() else stub.touch()
            self._lent[source] = Bind(source, f"{PLACE}/{name}")
        return self._lent[source].target

    def hide(self, target: str, by: Path) -> None:
        """Show `by` instead of the existing file `target` of the root file system."""
        self._hidden.append(Bind(by, target))

    def words(self, value: str) -> str:
        """`value` with the local files and folders among its words lent, by their new names.

        A word may be an absolute path or a `file:` URL; every other word stays.
        """
        if value.startswith("/") and Path(value).exists():
            return self.path(Path(value))
        return " ".join(self._word(word) for word in value.split())

    def _word(self, word: str) -> str:
        if word.startswith("/") and Path(word).exists():
            return self.path(Path(word))
        if word.startswith("file:"):
            local = Path(unquote(urlsplit(word).path))
            if local.exists():
                return f"file://{quote(self._index(local))}"
        return word

    def _index(self, folder: Path) -> str:
        """A package index: the pages in its folder `simple` link to files beside that folder."""
        if folder.name == "simple" and folder.parent != Path("/"):
            return f"{self.path(folder.parent)}/simple"
        return self.path(folder)
