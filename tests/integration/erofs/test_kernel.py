"""The kernel reads what we write: every field of every entry, and the extremes of each."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from dsec_layers.erofs.layout import SUPER_OFFSET
from dsec_layers.erofs.planning import Extent
from dsec_layers.linux.mount import mount_erofs, unmount
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.images import Image, build_image, write
from tests.support.mounts import Mounts, below, check_mounted_image, read_runs
from tests.support.trees import Contents, content_digest, trees

pytestmark = [pytest.mark.root, pytest.mark.erofs]

FILE = Entry(path=b"f", kind=EntryKind.FILE, mode=0o644)
DIRECTORY = Entry(path=b"d", kind=EntryKind.DIRECTORY, mode=0o755)
LINK = Entry(path=b"l", kind=EntryKind.SYMLINK, mode=0o777, target=b"t")
TIB = 1 << 40


@given(drawn=trees())
def test_every_field_is_what_was_written(mounts: Mounts, drawn: tuple[Tree, Contents]) -> None:
    with mounts.image(build_image(*drawn)) as root:
        check_mounted_image(root, *drawn)


def check(mounts: Mounts, *entries: Entry) -> None:
    """Mount entries without data and compare."""
    tree = Tree.of(entries)
    with mounts.image(Image(write(tree), b"", {})) as root:
        files = [entry for entry in tree if entry.kind is EntryKind.FILE]
        check_mounted_image(root, tree, {entry.path: bytes(entry.size) for entry in files})


def test_names_of_all_bytes_and_deep_paths(mounts: Mounts) -> None:
    names = [bytes([byte]) * 255 for byte in range(1, 256) if byte != ord("/")]
    entries, path = [replace(FILE, path=name) for name in names], b"deep"
    while len(path) < 3800:
        entries.append(replace(DIRECTORY, path=path))
        path += b"/" + b"\xfe" * 255
    check(mounts, *entries, replace(FILE, path=path))


def test_a_directory_of_100_000_entries(mounts: Mounts) -> None:
    names = [b"%d" % (number * 7919) for number in range(100_000)]
    tree = Tree.of([DIRECTORY, *(replace(FILE, path=b"d/" + name) for name in names)])
    with mounts.image(Image(write(tree), b"", {})) as root:
        assert sorted(os.listdir(below(root, b"d"))) == sorted(names)
        assert all((root / "d" / os.fsdecode(name)).exists() for name in names[::97])
        assert not (root / "d" / "x").exists()


def test_xattrs_larger_than_a_block_and_many_of_them(mounts: Mounts) -> None:
    large = ((b"trusted.large", b"v" * 65535), (b"user.small", b"w" * 4000))
    many = tuple((b"user.%03d" % number, b"%d" % number * 50) for number in range(200))
    check(
        mounts,
        replace(DIRECTORY, xattrs=large),
        replace(FILE, path=b"d/many", xattrs=many),
        replace(LINK, xattrs=large[:1], target=b"t" * 3000),
        replace(FILE, path=b"sized", size=8192, xattrs=many[:5]),
    )


def test_access_lists_and_capabilities(mounts: Mounts) -> None:
    access = bytes.fromhex("0200000001000600ffffffff04000400ffffffff20000400ffffffff")
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    lists = ((b"system.posix_acl_access", access), (b"system.posix_acl_default", access))
    capabilities = ((b"security.capability", capability),)
    check(mounts, replace(DIRECTORY, xattrs=lists), replace(FILE, xattrs=capabilities + lists[:1]))


def test_times_before_1970_and_after_2106_and_large_ids(mounts: Mounts) -> None:
    times = [-(2**63), -(2**31) * 10**9 - 1, -1, 2**31 * 10**9 + 7, 2**32 * 10**9 + 1, 2**63 - 1]
    file = replace(FILE, uid=2**32 - 2, gid=2**31, mode=0o6755)
    check(mounts, *(replace(file, path=b"%d" % n, mtime_ns=t) for n, t in enumerate(times)))


@pytest.mark.parametrize("length", [1, 4032, 4033, 4095])
def test_link_targets_of_all_lengths(mounts: Mounts, length: int) -> None:
    check(mounts, *(replace(LINK, path=name, target=b"t" * length) for name in (b"a", b"b", b"c")))


def test_a_sparse_terabyte(mounts: Mounts) -> None:
    start, data = TIB // 2, b"x" * 4096 + bytes((1 << 20) - 4096)
    tree = Tree.of([replace(FILE, size=TIB)])
    metadata = write(tree, {b"f": [Extent(start, 0, len(data))]}, len(data) // 4096)
    with mounts.image(Image(metadata, data, {})) as root, (root / "f").open("rb") as file:
        assert os.fstat(file.fileno()).st_size == TIB
        assert read_runs(below(root, b"f")) == [(start, len(data))]
        for offset, byte in ((0, b"\0"), (start, b"x"), (start + 4096, b"\0"), (TIB - 1, b"\0")):
            file.seek(offset)
            assert file.read(1) == byte


def test_a_file_at_the_end_of_a_16_tib_device(mounts: Mounts) -> None:
    last = (2**32 - 2) * 4096
    metadata = write(
        Tree.of([replace(FILE, size=4096)]), {b"f": [Extent(0, last, 4096)]}, 2**32 - 1
    )
    with mounts.image(Image(metadata, b"", {})) as root:
        with (root.parent / "device").open("r+b") as device:
            try:
                device.truncate(last + 4096)
            except OSError as error:
                pytest.skip(f"no file can be this large here: {error}")
            device.seek(last)
            device.write(b"y" * 4096)
        assert (root / "f").read_bytes() == b"y" * 4096


def test_blocks_of_a_sparse_file_count_its_whole_size(mounts: Mounts) -> None:
    """A limit of the kernel: st_blocks of a chunk-based inode comes from its size, not its data."""
    data = bytes(40960) + b"x"
    tree = Tree.of([replace(FILE, size=len(data), digest=content_digest(data))])
    with mounts.image(build_image(tree, {b"f": data})) as root:
        assert (root / "f").stat().st_blocks * 512 == 45056


def test_an_image_without_data_mounts_without_a_device(tmp_path: Path) -> None:
    metadata, target = tmp_path / "metadata", tmp_path / "mount"
    metadata.write_bytes(write(Tree.of([LINK])))
    target.mkdir()
    mount_erofs(metadata, target, device=None)
    try:
        assert os.listdir(target) == ["l"]
    finally:
        unmount(target)


def test_the_kernel_checks_the_superblock(tmp_path: Path) -> None:
    metadata, target = tmp_path / "metadata", tmp_path / "mount"
    data = bytearray(write(Tree.of([LINK])))
    data[SUPER_OFFSET + 120] ^= 1
    metadata.write_bytes(data)
    target.mkdir()
    with pytest.raises(OSError, match="mount"):
        mount_erofs(metadata, target, device=None)
