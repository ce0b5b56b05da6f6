"""erofs-utils as a second opinion: fsck.erofs accepts and extracts, dump.erofs sees the same."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.linux.process import Completed, run
from dsec_layers.model.escaping import to_stored
from dsec_layers.model.tree import Entry, Tree
from tests.support.images import Image, build_image
from tests.support.mounts import Mounts, below, read_entry
from tests.support.trees import Contents, data_runs, trees

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("fsck.erofs") is None, reason="erofs-utils is not installed"),
]


def check(image: Image, folder: Path, *options: str, tool: str = "fsck.erofs") -> Completed:
    (folder / "image").write_bytes(image.metadata)
    (folder / "device").write_bytes(image.device)
    argv = [tool, f"--device={folder / 'device'}", *options, str(folder / "image")]
    return run(argv, check=False)


def comparable(entry: Entry) -> Entry:
    """What fsck.erofs extracts of an entry."""
    mode = entry.mode & 0o777
    return replace(entry, mode=mode, xattrs=(), mtime_ns=0, size=0, digest=b"", link_group=0)


@given(drawn=trees())
def test_fsck_accepts_and_extracts(mounts: Mounts, drawn: tuple[Tree, Contents]) -> None:
    """Version 1.5 loses xattrs, hard links, set-id bits, 64-bit times and holes when extracting."""
    tree, contents = drawn
    with tempfile.TemporaryDirectory(dir=mounts.folder) as name:
        folder, out = Path(name), Path(name, "out")
        completed = check(build_image(tree, contents), folder, f"--extract={out}", "--preserve")
        assert completed.status == 0, completed.stderr
        for entry in tree:
            assert comparable(read_entry(out, entry.path)) == comparable(to_stored(entry))
            data = contents.get(entry.path, b"")
            if data_runs(data) == [(0, len(data))]:
                with open(below(out, entry.path), "rb") as file:
                    assert file.read() == data


def test_fsck_refuses_what_is_damaged(tmp_path: Path) -> None:
    image = build_image(Tree.of([]), {})
    nid = ErofsImage(image.metadata).root_nid
    damaged = bytearray(image.metadata)
    damaged[nid * 32 + 64 + 8] = 0xFF  # the offset of the first name
    assert check(image, tmp_path).status == 0
    assert check(Image(bytes(damaged), b"", {}), tmp_path).status != 0


@given(drawn=trees())
def test_dump_sees_the_same_superblock(mounts: Mounts, drawn: tuple[Tree, Contents]) -> None:
    built = build_image(*drawn)
    image = ErofsImage(built.metadata)
    with tempfile.TemporaryDirectory(dir=mounts.folder) as name:
        shown = check(built, Path(name), "-s", tool="dump.erofs").stdout.decode()
    values = dict(line.split(":", 1) for line in shown.splitlines() if ":" in line)
    values = {key: value.strip() for key, value in values.items()}
    assert int(values["Filesystem root nid"]) == image.root_nid
    assert int(values["Filesystem inode count"]) == image.inode_count
    assert int(values["Filesystem blocks"]) * 4096 == len(built.metadata) + len(built.device)
    assert bytes.fromhex(values["Filesystem UUID"].replace("-", "")) == image.uuid
    features = values["Filesystem features"].split()
    assert features == ["sb_csum", "mtime", "chunked_file", "device_table"]
