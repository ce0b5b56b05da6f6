"""`mount --rootless` as nobody: the whole tree, all its bytes, and the end of every kind."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dsec_layers.api import composing, importing
from dsec_layers.api.filedata import FileData, Place
from dsec_layers.api.opened import composition, opened
from dsec_layers.api.publishing import publish
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import (
    BusyError,
    CapabilityMissingError,
    InvalidInputError,
    NotFoundError,
)
from dsec_layers.model.content import Source
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.directory import walk
from tests.support.rootless import User, finished, user
from tests.support.trees import content_digest

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.peers("fusermount3")]

BASE, LAYER, ENV = map(Reference.parse, ("base/all:1", "workspace/changes:1", "env/all:1"))
MIB = 1 << 20
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def store() -> Iterator[Workbench]:
    """An environment of a base with all kinds of files, and of a layer that hides some."""
    folder = Path(tempfile.mkdtemp(prefix="dsec-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    bench = Workbench(folder / "home")
    importing.import_(bench, str(_base(folder / "base")), BASE)
    upper = _upper(folder / "upper")
    base = bench.resolve(BASE)
    provenance = Provenance(source="build", base=base.digest)
    publish(bench, upper, LAYER, run=RunConfig(), provenance=provenance)
    composing.compose(bench, [BASE, LAYER], ENV)
    yield bench
    shutil.rmtree(folder)


@pytest.fixture
def someone(store: Workbench) -> Iterator[User]:
    """The user, who owns the store too; nothing of his is left at the end."""
    with user() as made:
        made.own(store.home.root)
        yield made
        assert made.mounts() == []
        _await(lambda: not made.processes())
        left = {path.name for path in (made.home / "run/rootless").glob("*")}
        assert left <= {"lock", "log"}


@pytest.fixture
def target(someone: User) -> Path:
    return someone.folder / "mnt"


def test_the_whole_tree(someone: User, target: Path, store: Workbench) -> None:
    assert someone("--store", store.local.url, "mount", "--rootless", str(ENV), target) == (
        f"{target}\n"
    )
    seen, links = someone.walk(target)
    assert seen == _expected(store)
    counted: dict[int, int] = {}
    for entry in seen:
        counted[entry.link_group] = counted.get(entry.link_group, 0) + 1
    for entry in seen:
        if entry.kind is EntryKind.DIRECTORY:
            below = [other for other in seen if other.path and other.parent == entry.path]
            assert links[entry.path] == 2 + sum(each.kind is entry.kind for each in below)
        else:
            assert links[entry.path] == (counted[entry.link_group] if entry.link_group else 1)
    rows = [line.split(maxsplit=2) for line in someone("mount").splitlines()]
    assert rows[1:] == [[str(ENV), str(target), "ro, rootless"]]
    assert someone("umount", target) == ""
    assert not target.exists(), "it was made by mount"
    assert someone.json("mount") == []


def test_only_read_and_only_by_him(someone: User, target: Path, store: Workbench) -> None:
    someone("--store", store.local.url, "mount", "--rootless", str(ENV), target)
    try:
        refused = (
            "import os, sys\n"
            "for number, work in ((30, lambda: open(sys.argv[1] + '/new', 'w')),\n"
            "                     (30, lambda: os.unlink(sys.argv[1] + '/plain')),\n"
            "                     (30, lambda: os.chmod(sys.argv[1] + '/plain', 0o777)),\n"
            "                     (13, lambda: open(sys.argv[1] + '/dev/null'))):\n"
            "    try:\n        work()\n"
            "    except OSError as error:\n        assert error.errno == number, error\n"
            "    else:\n        raise SystemExit('it worked')\n"
            "print(open(sys.argv[1] + '/secret/of-root').read(), end='')\n"
        )
        assert someone.does(refused, target) == "secret", "what he fetched himself he may read"
        root = ("nsenter", f"--mount=/proc/{someone.holder}/ns/mnt", "ls", str(target))
        assert b"Permission denied" in subprocess.run(root, capture_output=True).stderr
        row = someone.json("mount")[0]
        assert row["read_only"]
        assert row["rootless"]
        taken = someone.fails(BusyError, "mount", "--rootless", str(ENV), target)
        assert str(target) in taken.error
    finally:
        someone("umount", target)


def test_a_corrupt_chunk_is_an_io_error(someone: User, target: Path, store: Workbench) -> None:
    places = _pack_places(store, b"data/second")
    saved = {path: path.read_bytes() for path, _ in places}
    try:
        for path, offset in places:
            path.chmod(0o644)
            with path.open("r+b") as file:
                file.seek(offset)
                file.write(bytes(100))
        someone("--store", store.local.url, "mount", "--rootless", str(ENV), target)
        read = (
            "import os, sys\n"
            "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
            "length = os.fstat(fd).st_size\n"
            "try:\n    got = sum(len(os.pread(fd, 65536, at)) for at in range(0, length, 65536))\n"
            "except OSError as error:\n    got = -error.errno\n"
            "print(got)\n"
        )
        assert int(someone.does(read, target / "data/first")) == 2 * MIB
        assert int(someone.does(read, target / "data/second")) == -5
        assert int(someone.does(read, target / "data/first")) == 2 * MIB
        log = (someone.home / "run/rootless/log").read_text()
        assert "data/second" in log
        for path, data in saved.items():
            path.write_bytes(data)
        assert int(someone.does(read, target / "data/second")) == 2 * MIB, "no error is kept"
        someone("umount", target)
    finally:
        for path, data in saved.items():
            path.write_bytes(data)


def test_a_killed_server(someone: User, target: Path, store: Workbench) -> None:
    mount = ("--store", store.local.url, "mount", "--rootless", str(ENV), target)
    someone(*mount)
    _kill(someone)
    assert "its server was killed" in someone("mount")
    again = someone.run(*mount)
    assert again.status == 0, again
    assert f"{target} held {ENV}, whose server was killed: unmounted" in again.stderr
    assert someone.walk(target)[0] == _expected(store)
    _kill(someone)
    someone("umount", target)
    assert not target.exists()
    assert someone.json("mount") == []


def test_a_server_that_is_asked_to_end_unmounts(
    someone: User, target: Path, store: Workbench
) -> None:
    someone("--store", store.local.url, "mount", "--rootless", str(ENV), target)
    os.kill(someone.json("mount")[0]["process"], signal.SIGTERM)
    _await(lambda: not someone.mounts() and not target.exists())


@pytest.mark.parametrize("delay_s", [0.2, 0.7, 1.2, 1.7])
def test_ctrl_c_while_it_mounts(
    delay_s: float, someone: User, target: Path, store: Workbench
) -> None:
    child = someone.start("--store", store.local.url, "mount", "--rootless", str(ENV), target)
    time.sleep(delay_s)
    child.send_signal(signal.SIGINT)
    ran = finished(child)
    if ran.status == 0:  # it was faster
        someone("umount", target)
    _await(lambda: not someone.processes())
    assert someone.mounts() == []
    assert not target.exists()


def test_in_use(someone: User, target: Path, store: Workbench) -> None:
    target.mkdir()
    someone.own(target)
    someone("--store", store.local.url, "mount", "--rootless", str(ENV), target)
    wait = (
        "import os, sys\n"
        "os.chdir(sys.argv[1])\n"
        "print('in', flush=True)\n"
        "os.read(os.open(sys.argv[2], os.O_RDONLY), 1)\n"
    )
    fifo = someone.folder / "fifo"
    os.mkfifo(fifo)
    someone.own(fifo)
    with someone.python("-c", wait, target / "data", fifo) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"in\n"
        busy = someone.fails(BusyError, "umount", target)
        assert f"pid {child.pid}" in busy.error
        assert "--lazy" in busy.hint
        someone("umount", "--lazy", "--all")
        assert someone.json("mount") == []
        with fifo.open("w") as writer:
            writer.write("x")
    assert target.is_dir(), "it was there before"


def test_in_the_foreground(someone: User, target: Path, store: Workbench) -> None:
    words = ("--store", store.local.url, "mount", "--rootless", "--foreground", str(ENV), target)
    for end in ("interrupt", "umount"):
        child = someone.start(*words)
        assert child.stdout is not None
        assert child.stdout.readline() == f"{target}\n".encode()
        assert someone.does("import sys; print(open(sys.argv[1]).read())", target / "plain")
        if end == "interrupt":
            child.send_signal(signal.SIGINT)
        else:
            someone("umount", target)
        ran = finished(child)
        assert ran.status == (130 if end == "interrupt" else 0), ran
        assert not target.exists()


def test_what_is_refused(someone: User, target: Path, store: Workbench) -> None:
    mount = ("--store", store.local.url, "mount", "--rootless")
    upper = someone.folder / "upper"
    refused = someone.fails(InvalidInputError, *mount, "--upper", upper, str(ENV), target)
    assert "--upper does not go with --rootless" in refused.error
    someone.fails(NotFoundError, *mount, "env/other:1", target)
    absent = someone.fails(CapabilityMissingError, *mount, str(ENV), target, environ={"PATH": "/"})
    assert "fusermount3 is not installed" in absent.error
    assert "fuse3" in absent.hint
    theirs = someone.fails(CapabilityMissingError, *mount, str(ENV), "/var/lib/dsec-nobodys")
    assert "/var/lib" in theirs.error
    without = someone.fails(CapabilityMissingError, "mount", str(ENV), target)
    assert "--rootless" in without.hint
    assert not target.exists()
    assert someone.run("mount", "--foreground", str(ENV), target).status == 2


def test_how_fast_it_reads(
    someone: User, target: Path, store: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    someone("--store", store.local.url, "mount", "--rootless", str(ENV), target)
    read = (
        "import os, sys, time\n"
        "for what in ('cold', 'warm'):\n"
        "    fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)\n"
        "    began, got = time.monotonic(), 0\n"
        "    while piece := os.read(fd, 1 << 20):\n        got += len(piece)\n"
        "    print(what, round(got / 1e6 / (time.monotonic() - began)), 'MB/s')\n"
    )
    said = someone.does(read, target / "data/large")
    someone("umount", target)
    with capsys.disabled():
        print("\nrootless, sequential:", ", ".join(said.splitlines()))


def _kill(someone: User) -> None:
    pid = someone.json("mount")[0]["process"]
    os.kill(pid, signal.SIGKILL)
    _await(lambda: pid not in someone.processes())


def _await(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def _base(root: Path) -> Path:
    for folder in ("data", "dev", "gone", "opaque", "secret", "odd"):
        (root / folder).mkdir(parents=True)
    (root / "plain").write_text("plain")
    (root / "replaced").write_text("below")
    (root / "data/first").write_bytes(os.urandom(2 * MIB))
    (root / "data/second").write_bytes(os.urandom(2 * MIB))
    (root / "data/large").write_bytes(os.urandom(32 * MIB))
    with (root / "data/sparse").open("wb") as file:
        file.write(b"begin".ljust(4096, b"-"))
        file.seek(5 * MIB)
        file.write(b"end")
        file.truncate(9 * MIB + 17)
    (root / "data/empty").touch()
    for name in ("one", "two", "data/three"):
        os.link(root / "plain", root / name)
    (root / "to-plain").symlink_to("plain")
    (root / "gone/inside").write_text("gone")
    (root / "opaque/below").write_text("hidden")
    (root / "secret/of-root").write_text("secret")
    (root / "secret/of-root").chmod(0o600)
    (root / "secret").chmod(0o700)
    os.mknod(root / "dev/null", 0o020666, os.makedev(1, 3))
    os.mknod(root / "dev/disk", 0o060660, os.makedev(259, 70000))
    os.mkfifo(root / "dev/pipe")
    os.mknod(root / "dev/socket", 0o140755)
    for number, odd_name in enumerate((b"\xff\xfe", b"a b\n", b"x" * 255, b"\xc3\xbc", b".wh.a")):
        odd = os.fsencode(root / "odd") + b"/" + odd_name
        with open(odd, "wb") as strange:
            strange.write(odd_name)
        os.utime(odd, ns=(0, (-1, 1, 1_700_000_000_123_456_789, 2**61, 0)[number]))
    for number in range(1500):
        (root / f"odd/file-{number:04}").write_text(str(number))
    os.chown(root / "odd/file-0001", 1234, 4294967290)
    (root / "odd/file-0002").chmod(0o4755)
    os.setxattr(root / "odd/file-0003", "user.note", b"v" * 3000)
    os.setxattr(root / "odd/file-0003", "user.empty", b"")
    os.setxattr(root / "odd/file-0004", "trusted.own", b"hidden from nobody")
    os.setxattr(root / "odd", "user.of-a-folder", b"\0\xff")
    return root


def _upper(root: Path) -> Source:
    for folder in ("data", "opaque"):
        (root / folder).mkdir(parents=True)
    (root / "replaced").write_text("above")
    (root / "opaque/above").write_text("shown")
    (root / "one").write_text("no link any more")
    (root / "added").write_text("added")
    os.link(root / "added", root / "data/added")
    source = walk(root)
    entries = [
        msgspec.structs.replace(entry, opaque=True) if entry.path == b"opaque" else entry
        for entry in source.tree
    ]
    entries.append(Entry(path=b"gone", kind=EntryKind.WHITEOUT))
    return Source(Tree.of(entries), source.contents)


def _expected(store: Workbench) -> Tree:
    """What mounts show: the composition, its contents read by another way, no trusted xattrs."""
    entries = []
    with opened(store, store.stack(ENV).layers) as layers:
        reader = FileData()
        for layer, entry in composition([each.tree for each in layers]).values():
            if entry.kind is EntryKind.FILE:
                data = b"".join(reader.stream(Place(layers[layer], entry)))
                entry = msgspec.structs.replace(entry, digest=content_digest(data))
            shown = tuple(pair for pair in entry.xattrs if not pair[0].startswith(b"trusted."))
            entries.append(msgspec.structs.replace(entry, xattrs=shown))
    return Tree.of(entries)


def _pack_places(store: Workbench, path: bytes) -> list[tuple[Path, int]]:
    """Where the chunks that hold nothing but the file at `path` lie in files of the store."""
    with opened(store, store.stack(ENV).layers) as layers:
        base = layers[0]
        extent = base.extents(path)[0]
        found = []
        for index in base.table.covering(extent.device_offset, extent.length):
            chunk = base.table[index]
            whole = (
                extent.device_offset <= chunk.device_offset
                and chunk.device_end <= extent.device_offset + extent.length
            )
            if whole:
                digest = base.layer.manifest.packs[chunk.pack].parsed_digest.hex
                place = next(iter(store.home.root.glob(f"store/**/*{digest[2:]}")))
                found.append((place, chunk.pack_offset + 20))
    assert found
    return found
