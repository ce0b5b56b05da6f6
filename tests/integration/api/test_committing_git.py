"""Repositories in a sandbox: garbage goes, and after a scrub no future commit can be found."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.api import committing, composing, looking, mounting
from dsec_layers.api.committed import Committed
from dsec_layers.api.committing import CommitOptions
from dsec_layers.builder.gitscrub import ScrubOptions
from dsec_layers.builder.residuerules import choose
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Reference
from tests.support.cli import BASE, Cli

pytestmark = [
    pytest.mark.root,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.peers("git"),
]
ENV = Reference.parse("env/e:v1")
NEW = Reference.parse("workspace/w:v2")


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    """Plain git of a user, as he would look for something."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    for who in ("AUTHOR", "COMMITTER"):
        environ |= {f"GIT_{who}_NAME": "t", f"GIT_{who}_EMAIL": "t@example.com"}
    done = subprocess.run(
        ["git", "-C", folder, *words], input=stdin, check=True, capture_output=True, env=environ
    )
    return done.stdout.decode().strip()


def commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(text)
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "HEAD")


def objects_of(folder: Path, commit: str, without: str) -> set[str]:
    listed = git(folder, "rev-list", "--objects", "--no-object-names", commit, f"^{without}")
    return set(listed.split())


@pytest.fixture
def sandbox(cli: Cli) -> Iterator[Path]:
    cli.add("workspace/w:v1", {"other": "x"})
    cli.compose(str(ENV), BASE, "workspace/w:v1")
    target = cli.folder / "mnt"
    mounting.mount(cli.bench, ENV, target)
    yield target
    mounting.umount(cli.bench, target)


@pytest.fixture
def project(sandbox: Path) -> Path:
    """Two commits on main, the first with a tag."""
    folder = sandbox / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "one")
    git(folder, "tag", "-a", "v1", "-m", "first")
    commit(folder, "two")
    return folder


def hide_future(folder: Path, how: str) -> set[str]:
    """A later commit that HEAD does not lead to, and its objects."""
    head = git(folder, "rev-parse", "HEAD")
    if how == "stash":
        (folder / "file").write_text("the fix")
        git(folder, "stash")
        future = git(folder, "rev-parse", "refs/stash")
        return objects_of(folder, future, head)
    future = commit(folder, "the fix")
    if how == "tag":
        git(folder, "tag", "v2")
    if how == "remote":
        git(folder, "update-ref", "refs/remotes/origin/main", future)
    if how in ("branch", "packed"):
        git(folder, "branch", "later")
    found = objects_of(folder, future, head)
    git(folder, "reset", "-q", "--hard", head)
    if how == "packed":
        git(folder, "gc", "-q")
    if how == "unreachable":
        git(folder, "reflog", "expire", "--expire=now", "--all")
    return found


def scrubbed(cli: Cli, sandbox: Path, shallow: bool = False) -> Committed:
    return committing.commit(cli.bench, sandbox, NEW, CommitOptions(scrub=ScrubOptions(shallow)))


def assert_hidden(cli: Cli, future: set[str], head: str, status: str, log: str) -> None:
    """In the environment the work goes on at HEAD, and nothing tells of the future."""
    composing.compose(cli.bench, [Reference.parse(BASE), NEW], Reference.parse("env/after:v1"))
    with mounting.mounted(cli.bench, Reference.parse("env/after:v1")) as rootfs:
        folder = rootfs.target / "project"
        assert git(folder, "rev-parse", "HEAD") == head
        assert git(folder, "status", "--porcelain") == status
        assert git(folder, "log", "--format=%H %s", "--decorate=no") == log
        git(folder, "fsck", "--full", "--strict")
        listed = set(git(folder, "rev-list", "--all", "--objects", "--reflog").split())
        every = git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        assert future.isdisjoint(listed)
        assert future.isdisjoint(every.split())
        for place in (folder / ".git").rglob("*"):
            data = place.read_bytes() if place.is_file() else b""
            path = (
                str(place.relative_to(folder / ".git/objects")) if "objects" in str(place) else ""
            )
            for digest in future:
                assert digest.encode() not in data, place
                assert bytes.fromhex(digest) not in data, place
                assert digest != path.replace("/", "")
        commit(folder, "work goes on")


@pytest.mark.parametrize(
    "how", ["reflog", "unreachable", "stash", "tag", "branch", "remote", "packed"]
)
def test_no_future_is_left(cli: Cli, sandbox: Path, project: Path, how: str) -> None:
    future = hide_future(project, how)
    assert future
    (project / "staged").write_text("in the index alone")
    git(project, "add", "staged")
    head, log = git(project, "rev-parse", "HEAD"), git(project, "log", "--format=%H %s")
    status = git(project, "status", "--porcelain")
    done = scrubbed(cli, sandbox)
    (attested,) = done.residue.git
    assert (attested.path, attested.head) == ("project", head)
    assert attested.objects_removed >= (0 if how == "unreachable" else len(future))
    assert_hidden(cli, future, head, status, log)
    assert git(project, "rev-parse", "HEAD") == head, "the sandbox is not touched"


def test_tags_of_the_past_stay(cli: Cli, sandbox: Path, project: Path) -> None:
    scrubbed(cli, sandbox)
    packed = b"".join(looking.cat(cli.bench, NEW, "/project/.git/packed-refs")).decode()
    names = [line.split()[1] for line in packed.splitlines() if not line.startswith("#")]
    assert names == ["refs/heads/main", "refs/tags/v1"]


def test_shallow(cli: Cli, sandbox: Path, project: Path) -> None:
    first = git(project, "rev-parse", "HEAD~")
    head = git(project, "rev-parse", "HEAD")
    past = objects_of(project, first, head) or {first}
    done = scrubbed(cli, sandbox, shallow=True)
    assert done.residue.git[0].shallow
    composing.compose(cli.bench, [Reference.parse(BASE), NEW], ENV)
    with mounting.mounted(cli.bench, ENV) as rootfs:
        folder = rootfs.target / "project"
        assert git(folder, "log", "--format=%s") == "two"
        assert git(folder, "tag") == ""
        git(folder, "fsck", "--full")
        every = git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        assert past.isdisjoint(every.split())


def test_garbage_alone_goes_by_itself(cli: Cli, sandbox: Path, project: Path) -> None:
    kept = hide_future(project, "branch")
    gone = git(project, "hash-object", "-w", "--stdin", stdin=b"never committed")
    done = committing.commit(cli.bench, sandbox, NEW)
    assert [(each.path, each.rule) for each in done.dropped] == [
        (f"/project/.git/objects/{gone[:2]}/{gone[2:]}", "git-unreachable")
    ]
    tree = looking.tree(cli.bench, NEW).by_path()
    for digest in kept:
        assert f"project/.git/objects/{digest[:2]}/{digest[2:]}".encode() in tree
    options = CommitOptions(rules=choose(keep=["git-unreachable"]))
    assert committing.commit(cli.bench, sandbox, NEW, options).dropped == ()


def test_garbage_over_a_repository_of_a_lower_layer(cli: Cli, sandbox: Path, project: Path) -> None:
    """What the lower layer's references lead to is not walked, and nothing of it is lost."""
    committing.commit(cli.bench, sandbox, NEW)
    name = Reference.parse("env/second:v1")
    composing.compose(cli.bench, [Reference.parse(BASE), NEW], name)
    target = cli.folder / "second"
    mounting.mount(cli.bench, name, target)
    try:
        folder = target / "project"
        gone = git(folder, "hash-object", "-w", "--stdin", stdin=b"never committed")
        kept = commit(folder, "three")
        (folder / "staged").write_text("staged")
        git(folder, "add", "staged")
        done = committing.commit(cli.bench, target, Reference.parse("workspace/w:v3"))
    finally:
        mounting.umount(cli.bench, target)
    assert [each.path for each in done.dropped] == [f"/project/.git/objects/{gone[:2]}/{gone[2:]}"]
    parts = [Reference.parse(each) for each in (BASE, "workspace/w:v3")]
    composing.compose(cli.bench, parts, Reference.parse("env/third:v1"))
    with mounting.mounted(cli.bench, Reference.parse("env/third:v1")) as rootfs:
        folder = rootfs.target / "project"
        assert git(folder, "rev-parse", "HEAD") == kept
        assert git(folder, "status", "--porcelain") == "A  staged"
        git(folder, "fsck", "--full", "--strict")


def test_repositories_below_are_replaced(cli: Cli, sandbox: Path, project: Path) -> None:
    """The repository lies in the workspace; the sandbox above it changes one file of it."""
    future = hide_future(project, "packed")
    committing.commit(cli.bench, sandbox, NEW)
    name = Reference.parse("env/second:v1")
    composing.compose(cli.bench, [Reference.parse(BASE), NEW], name)
    target = cli.folder / "second"
    mounting.mount(cli.bench, name, target)
    try:
        folder = target / "project"
        head, log = git(folder, "rev-parse", "HEAD"), git(folder, "log", "--format=%H %s")
        (target / "elsewhere").write_text("x")
        scrubbed(cli, target)
    finally:
        mounting.umount(cli.bench, target)
    assert_hidden(cli, future, head, "", log)


@pytest.mark.parametrize("how", ["alternates", "objects", "fifo", "gitdir", "worktree", "head"])
def test_hostile_repositories(cli: Cli, sandbox: Path, project: Path, how: str) -> None:
    meta = project / ".git"
    if how == "alternates":
        (meta / "objects/info/alternates").write_text("/etc\n")
    elif how == "objects":
        (meta / "objects").rename(project / "elsewhere")
        (meta / "objects").symlink_to(project / "elsewhere")
    elif how == "fifo":
        os.mkfifo(meta / "objects/pack/pack-1.idx")
    elif how == "gitdir":
        (meta / "commondir").write_text("/etc\n")
    elif how == "head":
        (meta / "refs/heads/main").write_text(f"{'0' * 39}1\n")
    else:
        git(project, "worktree", "add", "-q", str(sandbox / "tree"), "-b", "tree")
    before = cli.tags()
    with pytest.raises(InvalidInputError, match="the git repository project ") as error:
        scrubbed(cli, sandbox)
    assert error.value.hint
    assert cli.tags() == before
    committing.commit(cli.bench, sandbox, NEW)


def test_nothing_of_the_configuration_is_run(cli: Cli, sandbox: Path, project: Path) -> None:
    trap = cli.folder / "trap"
    with (project / ".git/config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = touch {trap}\n\tsshCommand = touch {trap}\n")
        file.write(f'[include]\n\tpath = {trap}\n[remote "o"]\n\turl = ext::touch {trap}\n')
        file.write("\tpromisor = true\n")
    hook = project / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {trap}\n")
    hook.chmod(0o755)
    scrubbed(cli, sandbox)
    assert not trap.exists()
    assert b"project/.git/hooks/post-index-change" in looking.tree(cli.bench, NEW).by_path()


def test_submodules(cli: Cli, sandbox: Path, project: Path) -> None:
    """They are scrubbed too, and the work trees stay whole."""
    part = sandbox / "part"
    part.mkdir()
    git(part, "init", "-q", "-b", "main")
    first = commit(part, "of the part")
    allow = ("-c", "protocol.file.allow=always")
    git(project, *allow, "submodule", "add", "-q", str(part), "sub")
    git(project, "commit", "-q", "-m", "with a part")
    inside = project / "sub"
    future = commit(inside, "the fix")
    git(inside, "reset", "-q", "--hard", first)
    done = scrubbed(cli, sandbox)
    assert [each.path for each in done.residue.git] == [
        *("part", "project", "project/.git/modules/sub"),
    ]
    composing.compose(cli.bench, [Reference.parse(BASE), NEW], ENV)
    with mounting.mounted(cli.bench, ENV) as rootfs:
        inside = rootfs.target / "project/sub"
        assert git(rootfs.target / "project", "status", "--porcelain") == ""
        assert git(inside, "rev-parse", "HEAD") == first
        every = git(inside, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        assert future not in every
        git(inside, "fsck", "--full")


def test_named_repositories_only(cli: Cli, sandbox: Path, project: Path) -> None:
    other = sandbox / "other-project"
    other.mkdir()
    git(other, "init", "-q", "--bare")
    options = CommitOptions(scrub=ScrubOptions(repositories=("/project",)))
    done = committing.commit(cli.bench, sandbox, NEW, options)
    assert [each.path for each in done.residue.git] == ["project"]


def test_a_repository_without_commits(cli: Cli, sandbox: Path) -> None:
    folder = sandbox / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "file").write_text("x")
    git(folder, "add", "file")
    scrubbed(cli, sandbox)
    composing.compose(cli.bench, [Reference.parse(BASE), NEW], ENV)
    with mounting.mounted(cli.bench, ENV) as rootfs:
        assert git(rootfs.target / "project", "status", "--porcelain") == "A  file"
        git(rootfs.target / "project", "fsck")
