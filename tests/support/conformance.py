"""Dockerfiles that two programs build: the cases, what an image shows, and how two images differ.

A case is a folder `tests/conformance/<topic>/<name>` with

    Dockerfile          what both build
    Dockerfile.peer     what the peer builds instead, when its parser lacks a form that ours has
    prepare.sh          run in a copy of the context: what a repository cannot hold
    case.toml           `args`, `target`, `secrets` and `contexts`; `serve`, a folder of files on
                        a web server whose address is the argument SERVER; `refused`, what our
                        error says where both have to refuse

and whatever else its context needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dsec_layers.model.tree import Entry, EntryKind
from tests.support.web import Page, serving

CASES: Final = Path(__file__).resolve().parents[1] / "conformance"
OLD_NS: Final = 1_600_000_000 * 10**9  # the time of all files of a context that say nothing else
_PARTS: Final = ("Dockerfile", "Dockerfile.peer", "prepare.sh", "case.toml")
_SHOWN: Final = 60
# Directories in which engines put their mount points, and the root, which an image of layers does
# not carry in every engine: when they were changed says nothing, nor does the mode of the root.
_OF_ENGINES: Final = (b"", b"dev", b"etc", b"proc", b"run", b"sys")


@dataclass(frozen=True)
class Case:
    """A case by its name, `<topic>/<name>`."""

    name: str
    args: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, str] = field(default_factory=dict)
    serve: str | None = None
    refused: str | None = None

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return CASES / self.name

    @property
    def dockerfile(self) -> Path:
        """What we build."""
        return self.folder / "Dockerfile"

    @property
    def peer_dockerfile(self) -> Path:
        """What the peer builds."""
        other = self.folder / "Dockerfile.peer"
        return other if other.exists() else self.dockerfile


@dataclass(frozen=True)
class Image:
    """What a build gave: entries with the digests of their contents, and the configuration."""

    entries: Mapping[bytes, Entry]
    contents: Mapping[bytes, bytes]  # of small files
    config: Mapping[str, object]


def cases(*topics: str) -> list[Case]:
    """The cases of some topics, or all, by name."""
    folders = sorted(path.parent for path in CASES.glob("*/*/Dockerfile"))
    names = [folder.relative_to(CASES) for folder in folders]
    return [load(str(name)) for name in names if not topics or name.parts[0] in topics]


def load(name: str) -> Case:
    """One case. Raises TypeError for an unknown setting."""
    settings = CASES / name / "case.toml"
    return Case(name, **tomllib.loads(settings.read_text()) if settings.exists() else {})


def prepare(case: Case, context: Path) -> None:
    """Copy the context of a case, complete it, and set the times that it does not choose."""
    ignored = shutil.ignore_patterns(*_PARTS)
    compiled = shutil.ignore_patterns("__pycache__")  # by who compiles all of the repository
    shutil.copytree(
        case.folder,
        context,
        symlinks=True,
        ignore=lambda at, names: (
            compiled(at, names) | (ignored(at, names) if at == str(case.folder) else set())
        ),
    )
    for path in context.rglob("*"):
        executable = path.is_dir() or os.access(path, os.X_OK)
        path.chmod(0o755 if executable else 0o644)  # whatever the umask of the clone
    context.chmod(0o755)
    script = case.folder / "prepare.sh"
    if script.exists():
        subprocess.run(["sh", "-eu", script], cwd=context, check=True, umask=0o022)
    for path in (context, *context.rglob("*")):
        if path.lstat().st_mtime_ns > OLD_NS:
            os.utime(path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)


@contextmanager
def served(case: Case) -> Iterator[Mapping[str, str]]:
    """The arguments of a case; what it wants served is there until the iterator is closed."""
    if case.serve is None:
        yield case.args
        return
    with serving() as web:
        folder = case.folder / case.serve
        for path in folder.iterdir():
            headers = {"Last-Modified": "Sun, 13 Sep 2020 12:26:40 GMT"}
            web.pages[f"/{path.name}"] = Page(path.read_bytes(), headers=headers)
        yield {**case.args, "SERVER": web.address}


def differences(ours: Image, theirs: Image, began_ns: int) -> list[str]:
    """One line for each difference: `<path> <what>: <ours> | <theirs>`, or `config <name>: ...`.

    Times are compared by the second, because archives of layers keep no more, and those since the
    build `began_ns` are all the same.
    """
    lines: list[str] = []
    for path in sorted({*ours.entries, *theirs.entries}):
        mine, other = (_facts(image, path, began_ns) for image in (ours, theirs))
        if mine["type"] != other["type"]:
            mine, other = {"type": mine["type"]}, {"type": other["type"]}
        lines += _compared(_shown(path), mine, other)
    names = {name for image in (ours, theirs) for name, value in image.config.items() if value}
    for name in sorted(names):
        one, two = ours.config.get(name) or None, theirs.config.get(name) or None
        lines += _compared("config", {name: one}, {name: two})
    return lines


def _compared(what: str, mine: Mapping[str, object], other: Mapping[str, object]) -> Iterator[str]:
    for name in mine:
        if mine[name] != other[name]:
            yield f"{what} {name}: {_text(mine[name])} | {_text(other[name])}"


def _facts(image: Image, path: bytes, began_ns: int) -> dict[str, Any]:
    entry = image.entries.get(path)
    if entry is None:
        return {"type": "absent"}
    facts: dict[str, Any] = {
        "type": entry.kind.name.lower(),
        "mode": f"{entry.mode:04o}",
        "owner": f"{entry.uid}:{entry.gid}",
        "time": "now" if entry.mtime_ns >= began_ns else entry.mtime_ns // 10**9,
        "attributes": ", ".join(f"{_shown(name)}={value.hex()}" for name, value in entry.xattrs),
        "target": _shown(entry.target),
        "device": (entry.major, entry.minor),
        "names": _names(image, entry),
    }
    if entry.kind is EntryKind.FILE:
        facts["content"] = image.contents.get(path, b"").decode(errors="backslashreplace")
        facts["digest"] = "" if path in image.contents else entry.digest.hex()
    if entry.kind is EntryKind.SYMLINK or not path:
        del facts["mode"]
    if path in _OF_ENGINES:
        del facts["time"]
    return facts


def _names(image: Image, entry: Entry) -> str:
    """All names of a hard-linked file."""
    if not entry.link_group:
        return ""
    group = (each.path for each in image.entries.values() if each.link_group == entry.link_group)
    return " ".join(map(_shown, sorted(group)))


def _shown(path: bytes) -> str:
    text = path.decode(errors="backslashreplace").replace("\n", "\\n")
    return f"/{text}" if len(text) <= 2 * _SHOWN else f"/{text[:_SHOWN]}..."


def _text(value: object) -> str:
    if value is None or value == "":
        return "none"
    text = value if isinstance(value, str) else repr(value)
    return text.replace("\n", "\\n")
