"""Git repositories of which only what HEAD needs is left, so that no future commit can be found.

Kept are HEAD, its history, the index, the configuration, and tags of commits in that history. A new
pack is made of just these objects; reflogs, stashes, other references, remembered heads and
everything else that lies in `.git` are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsec_layers.builder import gitshadow
from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.linux import git
from dsec_layers.model.residue import GitScrubbed, digest_of

# What stays of a `.git` directory besides objects and references: nothing that names objects but
# HEAD and the index.
KEPT: Final = (
    *(b"HEAD", b"config", b"config.worktree", b"description", b"index", b"hooks"),
    *(b"info/exclude", b"info/attributes", b"info/sparse-checkout"),
)
_SHARED_INDEX: Final = b"sharedindex."


@dataclass(frozen=True, slots=True)
class ScrubOptions:
    """`shallow` removes the commits before HEAD too. `repositories` name work trees or bare ones.

    Without names all repositories are scrubbed of which the layer has something.
    """

    shallow: bool = False
    repositories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """`folder` holds the new `objects/pack`, `packed-refs` and perhaps `shallow`."""

    folder: Path
    attested: GitScrubbed


def is_kept(path: bytes) -> bool:
    """Whether a path inside of `.git` stays as it is."""
    if path.startswith(_SHARED_INDEX):
        return True
    return any(path == name or path.startswith(name + b"/") for name in KEPT)


def scrub(folder: Path, work: Path, name: str, *, shallow: bool) -> Scrubbed:
    """Scrub the repository in the `.git` directory `folder`, which is not changed.

    `work` is a new folder for the result, `name` the repository's path for people. Raises
    InvalidInputError for what is refused or broken, CapabilityMissingError without git.
    """
    try:
        gitshadow.check(folder)
        return _scrub(folder, work, name, shallow=shallow)
    except InvalidInputError as error:
        hint = error.hint or "name the repositories that shall be scrubbed: --repository PATH"
        raise InvalidInputError(f"the git repository {name} {error.message}", hint=hint) from error


def _scrub(folder: Path, work: Path, name: str, *, shallow: bool) -> Scrubbed:
    shadow = gitshadow.shadow(folder, work / "shadow")
    head = shadow.asked("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    before = _objects(shadow)
    references = shadow.lines("for-each-ref", "--format=%(refname)")
    branch = gitshadow.symbolic_head(shadow)
    if head is None and (branch is None or branch.encode() in references):
        raise InvalidInputError("is broken: HEAD names no commit that is there")
    if shallow and head:
        (shadow.folder / "shallow").write_text(head + "\n")
    tags = _tags(shadow, shallow=shallow) if head else []
    kept = {name for _, name in tags}
    result = _result(shadow, work / "result", head, tags)
    try:
        result.run("fsck", "--connectivity-only", "--no-dangling", "--no-progress")
    except DsecError as error:
        raise InvalidInputError(f"is broken: {error.message}") from error
    gone = [each for each in references if each not in kept and each != (branch or "").encode()]
    removed = before - _objects(result)
    attested = GitScrubbed(
        path=name,
        head=head or "",
        objects_removed=len(removed),
        references_removed=len(gone),
        removed=digest_of((*removed, *gone)),
        shallow=shallow,
    )
    return Scrubbed(result.folder, attested)


def _tags(shadow: git.Shadow, *, shallow: bool) -> list[tuple[bytes, bytes]]:
    """Object and name of the tags that tell of HEAD and what came before it."""
    limit = "--points-at=HEAD" if shallow else "--merged=HEAD"
    lines = shadow.lines("for-each-ref", limit, "--format=%(objectname) %(refname)", "refs/tags")
    found = [line.partition(b" ") for line in lines]
    return [(digest, name) for digest, _, name in found]


def _result(
    shadow: git.Shadow,
    at: Path,
    head: str | None,
    tags: list[tuple[bytes, bytes]],
) -> git.Shadow:
    """A repository of the kept objects alone."""
    sha256 = "objectFormat" in (shadow.folder / "config").read_text()
    made = git.make_shadow(at, sha256=sha256)
    tips = [digest for digest, _ in tags] + ([head.encode()] if head else [])
    try:
        shadow.run(
            *("pack-objects", "--quiet", "--revs", "--indexed-objects", "--non-empty"),
            at / "objects/pack/pack",
            stdin=b"".join(tip + b"\n" for tip in tips),
        )
    except DsecError as error:
        raise InvalidInputError(f"is broken: {error.message}") from error
    (at / "HEAD").write_bytes((shadow.folder / "HEAD").read_bytes())
    for index in shadow.folder.glob("*index*"):
        (at / index.name).write_bytes(index.read_bytes())
    branch = gitshadow.symbolic_head(shadow)
    listed = {name: digest for digest, name in tags}
    if branch and head:
        listed[branch.encode()] = head.encode()
    lines = [listed[name] + b" " + name + b"\n" for name in sorted(listed)]
    (at / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + b"".join(lines))
    _keep_shallow(shadow, made)
    return made


def _keep_shallow(shadow: git.Shadow, result: git.Shadow) -> None:
    """Where the history ends, as far as it is still there."""
    file = shadow.folder / "shallow"
    if file.exists():
        left = sorted(set(file.read_bytes().split()) & _objects(result))
        if left:
            (result.folder / "shallow").write_bytes(b"".join(each + b"\n" for each in left))


def _objects(repository: git.Shadow) -> set[bytes]:
    """The ids of all its objects, reachable or not."""
    words = ("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)")
    return set(repository.lines(*words))
