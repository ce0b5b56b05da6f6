"""Awkward trees all the way: built, composed, pushed, and mounted lazily where nothing is."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import BASE, Cli

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci]

MIB = 1 << 20
TIB = 1 << 40
ODD_NAMES = (b"new\nline", b'quote"\\', b"spa ce", b"n" * 255, b"\xff\xfe raw")
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")
LAYERFILE = """\
LAYER workspace cases
FROM base/small:1
COPY tree /cases
RUN rm -rf /cases/replaced && mkdir /cases/replaced
RUN rm -rf /cases/file && mkdir /cases/file && echo in > /cases/file/below
RUN rm -rf /cases/directory && ln -s elsewhere /cases/directory
RUN ln /bin/sh /linked-shell
RUN rm /etc/group
"""


@pytest.fixture
def node() -> Iterator[Cli]:
    """A machine that has nothing."""
    made = Cli(Path(tempfile.mkdtemp(prefix="dsec-test-", dir="/var/tmp")))
    yield made
    made.close()


def make_context(folder: Path) -> Path:
    """A Layerfile and a tree to copy."""
    tree = folder / "tree"
    for name in ("replaced/old", "file", "directory/old", "plain"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("old")
    with (tree / "sparse").open("wb") as sparse:
        sparse.truncate(TIB)
        sparse.seek(TIB // 2)
        sparse.write(b"data" * 1024)
    (tree / "capable").write_bytes(b"#!")
    os.setxattr(tree / "capable", "security.capability", CAPABILITY)
    for odd in ODD_NAMES:
        (tree / os.fsdecode(odd)).write_bytes(odd)
    os.link(tree / "plain", tree / "hard")
    os.symlink("plain", tree / "soft")
    os.link(tree / "soft", tree / "hard-soft", follow_symlinks=False)
    os.mkfifo(tree / "pipe")
    os.mknod(tree / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (folder / "Layerfile").write_text(LAYERFILE)
    for path in sorted(tree.rglob("*"), reverse=True):
        os.utime(path, ns=(0, 1_234_567_890_123_456_789), follow_symlinks=False)
    return folder


@pytest.fixture
def mounted(cli: Cli, node: Cli) -> Path:
    """The environment on the second machine, its data in the store of a 3FS folder only."""
    context = make_context(cli.folder / "context")
    store = cli.folder / "3fs"
    store.mkdir()
    cli("build", context, "-t", "workspace/cases:1")
    cli("compose", BASE, "workspace/cases:1", "-t", "env/cases:1")
    cli("push", "env/cases:1", f"threefs://{store}")
    target = node.folder / "mnt"
    node("--store", f"threefs://{store}", "mount", "env/cases:1", target)
    return target


def test_awkward_trees_arrive_as_they_were(mounted: Path) -> None:
    cases = mounted / "cases"
    assert list((cases / "replaced").iterdir()) == []
    assert (cases / "file/below").read_text() == "in\n"
    assert os.readlink(cases / "directory") == "elsewhere"
    assert not (mounted / "etc/group").exists()
    assert (mounted / "etc/passwd").exists()
    assert os.getxattr(cases / "capable", "security.capability") == CAPABILITY
    assert (cases / "plain").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert os.lstat(cases / "soft").st_mtime_ns == 1_234_567_890_123_456_789
    assert (cases / "null").stat().st_rdev == os.makedev(1, 3)
    assert stat.S_ISFIFO((cases / "pipe").stat().st_mode)
    for odd in ODD_NAMES:
        assert (cases / os.fsdecode(odd)).read_bytes() == odd


def test_links_arrive_as_links(mounted: Path) -> None:
    cases = mounted / "cases"
    for first, second in (("plain", "hard"), ("soft", "hard-soft")):
        one, other = os.lstat(cases / first), os.lstat(cases / second)
        assert one.st_ino == other.st_ino
        assert one.st_nlink == other.st_nlink == 2
    assert (mounted / "linked-shell").read_bytes() == (mounted / "bin/sh").read_bytes()


def test_holes_arrive_as_holes(mounted: Path) -> None:
    fd = os.open(mounted / "cases/sparse", os.O_RDONLY)
    try:
        assert os.fstat(fd).st_size == TIB
        data = os.lseek(fd, 0, os.SEEK_DATA)
        hole = os.lseek(fd, data, os.SEEK_HOLE)
        assert TIB // 2 - 4 * MIB <= data <= TIB // 2
        assert TIB // 2 + 4096 <= hole <= TIB // 2 + 4 * MIB
        assert os.pread(fd, 4100, TIB // 2 - 2) == b"\0\0" + b"data" * 1024 + b"\0\0"
    finally:
        os.close(fd)


def test_a_link_to_a_file_of_the_base_adds_no_data(cli: Cli) -> None:
    """Overlayfs copies the file up whole; its chunks are those of the base."""
    context = cli.folder / "context"
    context.mkdir()
    (context / "Layerfile").write_text(
        "LAYER workspace links\nFROM base/small:1\nRUN ln /bin/sh /sh\nRUN chmod 700 /etc/passwd\n"
    )
    cli("build", context, "-t", "workspace/links:1")
    base, linked = (cli.json("inspect", name) for name in (BASE, "workspace/links:1"))
    assert linked["files"] == 3
    packs = {
        blob["digest"]: blob["size"]
        for blob in linked["blobs"]
        if blob["mediaType"].endswith("pack.v1")
    }
    known = {blob["digest"] for blob in base["blobs"]}
    assert packs.keys() <= known


def test_the_same_inputs_give_the_same_digests(cli: Cli, node: Cli) -> None:
    """Another machine, another directory, other owners, another number of workers, no cache."""
    environ = {"SOURCE_DATE_EPOCH": "1700000000"}
    here = make_context(cli.folder / "context")
    there = make_context(node.folder / "elsewhere/deep")
    for path in there.rglob("*"):
        if path.name != "capable":  # a change of owner takes capabilities away
            os.chown(path, 1000, 1000, follow_symlinks=False)
        os.utime(path, (5, 5), follow_symlinks=False)  # a checkout has other times
    cli.environ |= environ
    node.environ |= environ
    node.pull(cli.bench.local)
    first = cli.json("build", here, "-t", "workspace/cases:1")
    second = node.json(
        *("build", there, "--no-cache", "--workers", "3", "-t", "workspace/cases:other-tag"),
    )
    assert first["digest"] == second["digest"]
    again = cli.json("build", here, "-t", "workspace/cases:2", "--no-cache", "--workers", "1")
    assert again["digest"] == first["digest"]
