"""A writable rootfs is used as ext4 is; docs/writable-rootfs.md lists where it differs.

Every workload and check runs in a directory of the disk first, which is ext4 or like it, and then
in a rootfs whose lazily mounted layers hold the same.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsec_layers.api import importing, managing, mounting
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from tests.support import inotify, workloads
from tests.support.fsx import Exerciser
from tests.support.packed import pack_files
from tests.support.profiles import NIGHTLY

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs]

BASE, TOOL = Reference.parse("base/w:v1"), Reference.parse("toolkit/t:v1")
MIB = 1 << 20
LARGE = random.Random(1).randbytes(5 * MIB)
SPARSE_BYTES = 64 * MIB
FSX_SEEDS, FSX_STEPS = (100, 1000) if NIGHTLY else (6, 200)


@pytest.fixture(scope="module")
def workshop() -> Iterator[tuple[Workbench, Path]]:
    """A workbench with the layers, and the folder that they were made of."""
    folder = Path(tempfile.mkdtemp(prefix="dsec-test-", dir="/var/tmp")).resolve()
    bench = Workbench(folder / "home")
    try:
        make_tree(folder / "plain")
        importing.import_(bench, str(folder / "plain"), BASE)
        pack_files(bench, TOOL, {"merged/tool": b"tool"}, base=bench.resolve(BASE))
        (folder / "plain/merged/tool").write_bytes(b"tool")
        yield bench, folder
    finally:
        managing.client(bench).stop(force=True)
        shutil.rmtree(folder)


@pytest.fixture
def root(workshop: tuple[Workbench, Path]) -> Iterator[Path]:
    """The writable rootfs."""
    bench, folder = workshop
    with mounting.mounted(bench, TOOL, folder / "rootfs") as rootfs:
        yield rootfs.target


@pytest.fixture
def plain(workshop: tuple[Workbench, Path]) -> Iterator[Path]:
    """A copy of the same on the plain disk."""
    copy = workshop[1] / "copy"
    subprocess.run(["cp", "-a", workshop[1] / "plain", copy], check=True)
    yield copy
    shutil.rmtree(copy)


@pytest.fixture(params=["plain", "rootfs"])
def place(request: pytest.FixtureRequest) -> Path:
    """The one, then the other: what is asserted holds on both."""
    found = request.getfixturevalue("plain" if request.param == "plain" else "root")
    assert isinstance(found, Path)
    return found


def make_tree(root: Path) -> None:
    root.mkdir()
    workloads.make_project(root)
    (root / "large").write_bytes(LARGE)
    with (root / "sparse").open("wb") as file:
        for offset in (0, 20 * MIB, SPARSE_BYTES - MIB):
            file.seek(offset)
            file.write(LARGE[:MIB])
    (root / "first").write_bytes(b"linked")
    os.link(root / "first", root / "second")
    for folder in ("merged", "full", "empty"):
        (root / folder).mkdir()
    for number in range(300):
        (root / f"full/{number:03}").write_bytes(b"%d" % number)
    (root / "merged/base").write_bytes(b"base")
    (root / "file").write_bytes(b"lower")
    (root / "other").write_bytes(b"other")
    for seed in range(FSX_SEEDS):
        (root / f"fsx{seed}").write_bytes(random.Random(seed).randbytes(seed * 20_000))


# Workloads: the result is that of the plain disk, entry by entry.


@pytest.mark.parametrize("work", [workloads.clone, workloads.install, workloads.compile_all])
def test_work_has_the_result_it_has_on_ext4(
    work: Callable[[Path], None], plain: Path, root: Path
) -> None:
    before = workloads.shown(root)
    assert before == workloads.shown(plain)
    work(plain)
    work(root)
    assert workloads.shown(root) == workloads.shown(plain) != before


# What holds on both.


def test_random_operations_on_a_file(place: Path) -> None:
    for seed in range(FSX_SEEDS):
        path = place / f"fsx{seed}"
        Exerciser(path, bytearray(path.read_bytes()), random.Random(seed)).run(FSX_STEPS)


def test_a_large_file_is_changed_in_place(place: Path) -> None:
    with (place / "large").open("r+b") as file:
        file.seek(3 * MIB)
        file.write(b"changed")
    data = bytearray(LARGE)
    data[3 * MIB : 3 * MIB + 7] = b"changed"
    assert (place / "large").read_bytes() == data
    os.truncate(place / "large", 1000)
    assert (place / "large").read_bytes() == LARGE[:1000]


def test_a_sparse_file_stays_sparse(place: Path) -> None:
    with (place / "sparse").open("r+b") as file:
        file.seek(MIB)
        file.write(b"!")
        assert os.lseek(file.fileno(), 2 * MIB, os.SEEK_DATA) == 20 * MIB
        assert os.lseek(file.fileno(), 20 * MIB, os.SEEK_HOLE) == 21 * MIB
    status = (place / "sparse").stat()
    assert status.st_size == SPARSE_BYTES
    assert status.st_blocks * 512 < 5 * MIB
    with (place / "sparse").open("rb") as file:
        for offset in (0, 20 * MIB, SPARSE_BYTES - MIB):
            file.seek(offset)
            assert file.read(MIB) == LARGE[:MIB]


def test_flock_holds_across_the_first_write(place: Path) -> None:
    with (place / "file").open("rb") as reader, (place / "file").open("r+b") as writer:
        fcntl.flock(reader, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(reader, fcntl.LOCK_UN)
        fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_record_locks_hold_between_processes(place: Path) -> None:
    program = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 2, 0)\n"
        "except BlockingIOError: print('refused', end='')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 2, 3)\n"
    )
    with (place / "file").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 2, 0)
        command = [sys.executable, "-c", program, str(place / "file")]
        assert subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout == b"refused"


def test_renames_over_what_is_there(place: Path) -> None:
    (place / "file").rename(place / "other")
    assert (place / "other").read_bytes() == b"lower"
    assert not (place / "file").exists()
    (place / "new").write_bytes(b"new")
    (place / "new").rename(place / "large")
    assert (place / "large").read_bytes() == b"new"
    (place / "fresh").mkdir()
    (place / "fresh/in").touch()
    (place / "fresh").rename(place / "empty")
    assert os.listdir(place / "empty") == ["in"]
    (place / "again").mkdir()
    with pytest.raises(OSError, match="not empty"):
        (place / "again").rename(place / "full")
    shutil.rmtree(place / "full")
    (place / "again").rename(place / "full")
    assert os.listdir(place / "full") == []


def test_mv_moves_a_directory(place: Path) -> None:
    subprocess.run(["mv", place / "merged", place / "moved"], check=True)
    assert sorted(os.listdir(place / "moved")) == ["base", "tool"]
    assert not (place / "merged").exists()


def test_a_removed_file_is_there_for_who_has_it_open(place: Path) -> None:
    with (place / "file").open("r+b") as file, (place / "other").open("rb") as reader:
        (place / "file").unlink()
        (place / "other").unlink()
        file.write(b"still")
        file.seek(0)
        assert file.read() == b"still"
        assert reader.read() == b"other"
        assert os.fstat(file.fileno()).st_nlink == 0
    (place / "file").mkdir()
    assert os.listdir(place / "file") == []


def test_a_file_without_a_name(place: Path) -> None:
    fd = os.open(place / "full", os.O_TMPFILE | os.O_RDWR)
    os.write(fd, b"kept")
    os.link(f"/proc/self/fd/{fd}", place / "full/named", src_dir_fd=fd)  # as linkat(2) follows
    os.close(fd)
    assert (place / "full/named").read_bytes() == b"kept"


def test_new_links_are_links(place: Path) -> None:
    os.link(place / "file", place / "also")
    (place / "also").write_bytes(b"both")
    assert (place / "file").read_bytes() == b"both"
    assert (place / "file").stat().st_nlink == 2
    assert (place / "file").stat().st_ino == (place / "also").stat().st_ino


def test_a_directory_is_listed_while_it_changes(place: Path) -> None:
    """What is there all the time is listed once; the rest at most once."""
    with os.scandir(place / "full") as entries:
        seen = [next(entries).name]
        for number in range(0, 300, 2):
            (place / f"full/{number:03}").unlink()
            (place / f"full/new{number}").touch()
        seen += [entry.name for entry in entries]
    assert len(seen) == len(set(seen))
    assert {f"{number:03}" for number in range(1, 300, 2)} <= set(seen)
    assert len(os.listdir(place / "full")) == 300


def test_a_watched_directory_tells_of_changes(place: Path) -> None:
    watch = inotify.Watch(place / "merged", inotify.CREATE | inotify.MODIFY)
    (place / "merged/new").write_bytes(b"x")
    assert watch.seen() == ["new", "new"]
    watch.close()


def test_a_watched_file_tells_of_its_first_write(place: Path) -> None:
    watch = inotify.Watch(place / "file", inotify.MODIFY)
    with (place / "file").open("r+b", buffering=0) as file:
        file.write(b"x")
    assert watch.seen() == [""]
    watch.close()


def test_a_file_keeps_its_inode_at_its_first_write(place: Path) -> None:
    before = (place / "file").stat()
    (place / "file").write_bytes(b"changed")
    after = (place / "file").stat()
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)


def test_who_opened_a_file_for_reading_sees_what_is_written(place: Path) -> None:
    with (place / "file").open("rb", buffering=0) as reader:
        (place / "file").write_bytes(b"UPPER")
        assert reader.read() == b"UPPER"


def test_extended_attributes(place: Path) -> None:
    os.setxattr(place / "file", "user.note", b"x")
    assert os.getxattr(place / "file", "user.note") == b"x"
    assert os.listxattr(place / "file") == ["user.note"]
    os.removexattr(place / "file", "user.note")


# What differs: see docs/writable-rootfs.md, which has a line for each of these.


def test_a_directory_of_a_layer_cannot_be_renamed(root: Path) -> None:
    for name in ("full", "merged"):
        with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
            (root / name).rename(root / "elsewhere")
    (root / "mine").mkdir()
    (root / "mine").rename(root / "elsewhere")
    shutil.move(root / "full", root / "moved")
    assert len(os.listdir(root / "moved")) == 300
    told = subprocess.run(["git", "mv", "old", "new"], cwd=root / "project", capture_output=True)
    assert b"cross-device" in told.stderr


def test_a_mapping_made_before_the_first_write_shows_the_old_file(root: Path) -> None:
    with (root / "file").open("rb", buffering=0) as reader:
        mapped = mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ)
        with mapped, (root / "file").open("r+b", buffering=0) as writer:
            writer.write(b"UPPER")
            assert mapped[:] == b"lower"
            assert os.pread(reader.fileno(), 5, 0) == b"UPPER"


def test_hard_links_of_a_layer_part_at_the_first_write(root: Path) -> None:
    assert (root / "first").stat().st_ino == (root / "second").stat().st_ino
    (root / "first").write_bytes(b"changed")
    assert (root / "second").read_bytes() == b"linked"
    assert (root / "first").stat().st_ino != (root / "second").stat().st_ino


def test_a_file_of_a_layer_cannot_be_read_past_the_page_cache(root: Path) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        os.open(root / "large", os.O_RDONLY | os.O_DIRECT)
    fd = os.open(root / "large", os.O_RDWR | os.O_DIRECT)  # which copies it
    try:
        with mmap.mmap(-1, MIB) as buffer:
            assert os.preadv(fd, [buffer], MIB) == MIB
            assert buffer[:] == LARGE[MIB : 2 * MIB]
    finally:
        os.close(fd)


def test_a_directory_in_several_layers_counts_as_one_link(root: Path) -> None:
    assert (root / "merged").stat().st_nlink == 1
    assert (root / "project").stat().st_nlink > 2
    (root / "project/more").touch()  # now it is in the upper too
    assert (root / "project").stat().st_nlink == 1


def test_the_first_write_copies_the_whole_file(
    root: Path, workshop: tuple[Workbench, Path]
) -> None:
    (found,) = [each for each in mounting.list_mounts(workshop[0]) if each.target == str(root)]
    assert found.upper is not None
    with (root / "large").open("r+b") as file:
        file.write(b"!")
    assert (Path(found.upper) / "large").stat().st_blocks * 512 >= 5 * MIB
    os.chmod(root / "sparse", 0o600)
    assert (Path(found.upper) / "sparse").stat().st_size == SPARSE_BYTES
    assert (Path(found.upper) / "sparse").stat().st_blocks * 512 >= 3 * MIB


def test_a_whiteout_cannot_be_made_by_hand(root: Path) -> None:
    with pytest.raises(PermissionError):
        os.mknod(root / "device", 0o20600, os.makedev(0, 0))
