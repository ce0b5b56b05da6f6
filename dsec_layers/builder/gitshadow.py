"""A stranger's git repository as far as it is safe to look at: checked, and shadowed.

What is refused could lead git out of the repository: links, objects of other repositories, folders
elsewhere. A shadow (`linux.git`) holds copies of its references, reflogs and index.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import git

_COPIED: Final = ("HEAD", "packed-refs", "shallow", "index")
_COPIED_FOLDERS: Final = ("refs", "logs")
# Where git notes what it is in the middle of; these name objects that no reference does.
_UNDER_WAY: Final = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"),
    *("rebase-merge", "rebase-apply", "sequencer"),
)
_SYMBOLIC: Final = re.compile(rb"ref: (refs/[^\0\n]+)\n?")


def check(folder: Path) -> None:
    """Raises InvalidInputError saying why the repository in the `.git` directory is refused."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidInputError("is a file or link that points to another folder")
    for name in ("commondir", "objects/info/alternates", "objects/info/http-alternates"):
        if (folder / name).exists() or (folder / name).is_symlink():
            raise InvalidInputError(f"has {name}: parts of it lie elsewhere")
    if (folder / "worktrees").exists():
        raise InvalidInputError("has linked work trees", hint="`git worktree prune` removes them")
    for name in ("HEAD", "objects", "refs"):
        if not (folder / name).exists() or (folder / name).is_symlink():
            raise InvalidInputError(f"has no {name} of its own")
    for place in _below(folder):
        inside, mode = place.relative_to(folder), place.lstat().st_mode
        if stat.S_ISLNK(mode) and inside.parts[0] != "hooks":
            raise InvalidInputError(f"has a symbolic link: {inside}")
        if inside.parts[0] == "objects" and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InvalidInputError(f"has no object in {inside}, which is no file")


def under_way(folder: Path) -> bool:
    """Whether a merge, rebase or the like is not finished."""
    return any((folder / name).exists() for name in _UNDER_WAY)


def shadow(folder: Path, at: Path, *, objects: Path | None = None) -> git.Shadow:
    """A shadow in the new folder `at` of the checked repository in `folder`.

    Its objects are those of the repository, unless they are elsewhere.
    """
    settings = at.with_name(at.name + "-config")
    _copy(folder / "config", settings)
    sha256 = git.setting(settings, "extensions.objectformat") == "sha256"
    made = git.make_shadow(at, objects=[objects or folder / "objects"], sha256=sha256)
    shared = [place.name for place in folder.glob("sharedindex.*")]
    for name in (*_COPIED, *shared):
        _copy(folder / name, at / name)
    for name in _COPIED_FOLDERS:
        for place in _below(folder / name):
            _copy(place, at / place.relative_to(folder))
    return made


def symbolic_head(shadow: git.Shadow) -> str | None:
    """The reference that HEAD names; None when it names a commit."""
    match = _SYMBOLIC.fullmatch((shadow.folder / "HEAD").read_bytes())
    return os.fsdecode(match[1]) if match else None


def _below(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        yield from (Path(top, name) for name in (*files, *folders))


def _copy(source: Path, target: Path) -> None:
    """Copy a regular file; anything else is left out, and no link is followed."""
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(fd, "rb") as file, target.open("wb") as out:
        shutil.copyfileobj(file, out)
