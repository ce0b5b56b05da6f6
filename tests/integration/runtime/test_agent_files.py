"""Files, trees, changes and ports through the agent."""

from __future__ import annotations

import errno
import io
import os
import socket
import subprocess
import tarfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dsec_runtime.channel import Channel
from dsec_runtime.errors import FileError, InfrastructureError, UnsupportedError
from dsec_runtime.spec import ExecSpec
from tests.support import agents

pytestmark = pytest.mark.root


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[agents.Agent]:
    with agents.running(tmp_path) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


async def whole(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


def test_a_file_is_written_and_read_from_any_offset(agent: agents.Agent, place: Path) -> None:
    content = os.urandom(5 << 20)
    path = str(place / "sub" / "file")

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 300_000):
            yield content[at : at + 300_000]

    async def life(channel: Channel) -> None:
        info = await channel.write_file(path, pieces(), mode=0o4640, uid=12, gid=34, parents=True)
        assert (info.mode, info.uid, info.gid, info.size_bytes) == (0o4640, 12, 34, len(content))
        assert await whole(channel.read_file(path)) == content
        assert await whole(channel.read_file(path, 1234567)) == content[1234567:]
        assert await whole(channel.read_file(path, 100, 50)) == content[100:150]
        assert await whole(channel.read_file(path, len(content) + 5)) == b""
        await channel.write_file(path, b"HERE", where=1000)
        await channel.write_file(path, b"END", where="end")
        assert Path(path).read_bytes() == content[:1000] + b"HERE" + content[1004:] + b"END"
        await channel.write_file(path, b"short")
        assert (await channel.stat(path)).size_bytes == 5

    agents.talk(agent, life)


def test_written_aside_it_is_the_old_one_or_the_new_one(agent: agents.Agent, place: Path) -> None:
    path = place / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    os.chown(path, 7, 8)

    async def broken() -> AsyncIterator[bytes]:
        yield b"new" * 1000
        assert path.read_bytes() == b"old"
        raise RuntimeError("the caller has no more")

    async def life(channel: Channel) -> None:
        with pytest.raises(RuntimeError):
            await channel.write_file(str(path), broken(), aside=True)
        assert path.read_bytes() == b"old"
        info = await channel.write_file(str(path), b"new", aside=True, sync=True)
        assert path.read_bytes() == b"new"
        assert (info.mode, info.uid, info.gid) == (0o600, 7, 8)
        with pytest.raises(FileError) as caught:
            await channel.write_file(str(path), b"newer", aside=True, exclusive=True)
        assert caught.value.detail["errno"] == errno.EEXIST
        # The helper of the broken one removes what it had: a command that waits sees it go.
        spec = ExecSpec(argv=("sh", "-c", f"while ls -A {place} | grep -q dsec; do :; done"))
        await (await channel.exec(spec, "wait")).wait()
        assert os.listdir(place) == ["file"]

    agents.talk(agent, life)


def test_names_are_listed_made_moved_changed_and_removed(agent: agents.Agent, place: Path) -> None:
    async def life(channel: Channel) -> None:
        at = str(place)
        await channel.make_dir(f"{at}/a/b/c", mode=0o2750, uid=3, gid=4, parents=True)
        await channel.make_dir(f"{at}/a/b/c", parents=True)
        await channel.make_link(f"{at}/link", "a/b")
        await channel.write_file(f"{at}/a/file", b"x")
        await channel.change(f"{at}/a/file", mode=0o755, uid=5, modified_ns=1_000_000_001)
        listed = {info.path.removeprefix(at): info for info in await channel.list_dir(at)}
        assert {path: info.kind for path, info in listed.items()} == {
            "/a": "directory",
            "/link": "symlink",
        }
        assert listed["/link"].target == "a/b"
        file = await channel.stat(f"{at}/a/file")
        assert (file.mode, file.uid, file.gid, file.modified_ns) == (0o755, 5, 0, 1_000_000_001)
        folder = await channel.stat(f"{at}/link/c", follow=True)
        assert (folder.kind, folder.mode, folder.uid, folder.gid) == ("directory", 0o2750, 3, 4)
        await channel.move(f"{at}/a/file", f"{at}/moved")
        with pytest.raises(FileError, match="File exists"):
            await channel.move(f"{at}/moved", f"{at}/link", replace=False)
        with pytest.raises(FileError, match="not empty"):
            await channel.remove(f"{at}/a")
        await channel.remove(f"{at}/a", recursive=True)
        await channel.remove(f"{at}/none", missing_ok=True)
        with pytest.raises(FileError) as caught:
            await channel.remove(f"{at}/none")
        assert caught.value.detail == {"path": f"{at}/none", "errno": errno.ENOENT}
        assert sorted(os.listdir(place)) == ["link", "moved"]

    agents.talk(agent, life)


@pytest.mark.overlay
def test_a_folder_of_a_lower_layer_moves_as_a_copy(tmp_path: Path, place: Path) -> None:
    for name in ("lower", "upper", "work"):
        (tmp_path / name).mkdir()
    lower = tmp_path / "lower" / "folder"
    (lower / "sub").mkdir(parents=True)
    (lower / "sub" / "file").write_bytes(b"x" * 100_000)
    os.chown(lower / "sub", 5, 6)
    (lower / "link").symlink_to("sub")
    lower.chmod(0o2710)
    attributes = {"sub": b"\0of a=folder\n", "sub/file": b"x" * 3000, ".": b""}
    for name, value in attributes.items():
        os.setxattr(lower / name, "user.it", value)
    options = ",".join(f"{name}dir={tmp_path}/{name}" for name in ("lower", "upper", "work"))
    mount = f'mount -t overlay none -o {options} {place}; exec "$@"'
    with agents.running(tmp_path, prefix=("bash", "-c", mount, "-")) as agent:

        async def life(channel: Channel) -> None:
            moved = f"{place}/moved"
            await channel.move(f"{place}/folder", moved)
            listed = await channel.list_dir(str(place))
            assert [(info.path, info.mode) for info in listed] == [(moved, 0o2710)]
            assert (await channel.stat(f"{moved}/sub")).uid == 5
            assert (await channel.stat(f"{moved}/link")).target == "sub"
            assert await whole(channel.read_file(f"{moved}/sub/file")) == b"x" * 100_000
            copy = tmp_path / "upper/moved"
            found = {name: os.getxattr(copy / name, "user.it") for name in attributes}
            assert found == attributes
            # Between file systems, a file too.
            other = str(tmp_path / "other")
            await channel.move(f"{moved}/sub/file", other)
            assert Path(other).read_bytes() == b"x" * 100_000
            assert os.getxattr(other, "user.it") == attributes["sub/file"]
            os.mkfifo(tmp_path / "pipe")
            with pytest.raises(FileError) as caught:
                await channel.move(str(tmp_path / "pipe"), f"{place}/pipe")
            assert caught.value.detail["errno"] == errno.EXDEV
            assert len(await channel.list_dir(str(place))) == 1
            with pytest.raises(FileError) as caught:
                await channel.move(other, f"{place}/moved", replace=False)
            assert caught.value.detail["errno"] == errno.EEXIST
            assert Path(other).exists()

        agents.talk(agent, life)


def test_large_folders_are_listed_and_deep_ones_removed(agent: agents.Agent, place: Path) -> None:
    many = [f"{number:05}-{'n' * 200}" for number in range(8000)]
    (place / "wide").mkdir()
    for name in many:
        (place / "wide" / name).touch()
    fd = os.open(place, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=fd)
        below = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)

    async def life(channel: Channel) -> None:
        names = [Path(info.path).name for info in await channel.list_dir(str(place / "wide"))]
        assert names == many
        await channel.remove(str(place), recursive=True)
        assert not place.exists()

    try:
        agents.talk(agent, life)
    finally:  # pytest does not get so deep
        subprocess.run(["rm", "-rf", place], check=True)


def test_what_is_no_file_is_refused_and_blocks_nobody(agent: agents.Agent, place: Path) -> None:
    os.mkfifo(place / "pipe")
    (place / "memory").symlink_to("/proc/1/mem")
    (place / "setting").symlink_to("/proc/sys/kernel/hostname")

    async def life(channel: Channel) -> None:
        for path in (place / "pipe", place, Path("/dev/zero")):
            with pytest.raises(FileError):
                await whole(channel.read_file(str(path)))
            with pytest.raises(FileError):
                await channel.write_file(str(path), b"x")
        for path in (place / "memory", place / "setting"):
            with pytest.raises(FileError) as caught:
                await channel.write_file(str(path), b"x", where=4096)
            assert caught.value.detail["errno"] in (errno.EPERM, errno.EACCES)
        with pytest.raises(FileError) as caught:
            await whole(channel.read_file(str(place / "memory")))
        assert caught.value.detail["errno"] in (errno.EPERM, errno.EACCES)

    agents.talk(agent, life)


def test_a_tree_goes_out_and_comes_back_the_same(agent: agents.Agent, place: Path) -> None:
    tree = place / "tree"
    long = tree / ("d" * 120) / ("ü" * 60) / ("f" * 200)
    long.parent.mkdir(parents=True)
    long.write_bytes(b"deep")
    (tree / "empty").mkdir(mode=0o1777)
    (tree / "file").write_bytes(os.urandom(1_500_001))
    os.link(tree / "file", tree / "again")
    (tree / "link").symlink_to("x" * 150)
    os.chown(tree / "file", 3_000_000, 42)
    os.utime(tree / "file", ns=(1, 1_700_000_000_123_456_789))
    (tree / "file").chmod(0o6755)
    os.mkfifo(tree / "pipe")

    async def life(channel: Channel) -> None:
        data = await whole(channel.download_tree(str(tree)))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            names = {os.path.normpath(member.name) for member in archive}
        assert str(long.relative_to(tree)) in names
        assert "pipe" not in names
        copy = place / "made" / "copy"
        count = await channel.upload_tree(str(copy), data, owners=True)
        assert count == len(names)
        assert (copy / long.relative_to(tree)).read_bytes() == b"deep"
        one, other = (tree / "file").stat(), (copy / "file").stat()
        assert (copy / "file").read_bytes() == (tree / "file").read_bytes()
        for field in ("st_mode", "st_uid", "st_gid", "st_mtime_ns", "st_size", "st_nlink"):
            assert getattr(one, field) == getattr(other, field), field
        assert (copy / "again").stat().st_ino == other.st_ino
        assert os.readlink(copy / "link") == "x" * 150
        assert (copy / "empty").stat().st_mode == (tree / "empty").stat().st_mode

    agents.talk(agent, life)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_archives_of_others_are_unpacked_within_the_folder(
    agent: agents.Agent, place: Path, form: int
) -> None:
    long = "/".join(["folder" * 20] * 3) + "/" + "n" * 140
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in ((long, b"one"), ("/absolute", b"two"), ("./plain", b"")):
            member = tarfile.TarInfo(name)
            member.size, member.uid = len(content), 77
            archive.addfile(member, io.BytesIO(content))

    escape = io.BytesIO()
    with tarfile.open(fileobj=escape, mode="w", format=form) as archive:
        archive.addfile(tarfile.TarInfo("a/../../out"))

    async def life(channel: Channel) -> None:
        await channel.upload_tree(str(place), buffer.getvalue(), uid=9)
        assert (place / long).read_bytes() == b"one"
        assert (place / "absolute").read_bytes() == b"two"
        assert (place / "plain").stat().st_uid == 9
        with pytest.raises(FileError, match="Invalid"):
            await channel.upload_tree(str(place), escape.getvalue())
        with pytest.raises(FileError, match="Bad message"):
            await channel.upload_tree(str(place), buffer.getvalue()[:700])
        assert not (place.parent / "out").exists()

    agents.talk(agent, life)


def test_changes_are_told_as_they_happen(agent: agents.Agent, place: Path) -> None:
    (place / "sub").mkdir()

    async def life(channel: Channel) -> None:
        async with channel.watch(str(place), recursive=True) as changes:
            (place / "sub" / "file").write_bytes(b"x")
            (place / "sub" / "file").rename(place / "file")
            (place / "new").mkdir()
            (place / "file").unlink()
            seen = []
            async for change in changes:
                seen.append((change.kind, change.path, change.folder))
                if change.kind == "removed":
                    break
        assert seen == [
            ("created", "sub/file", False),
            ("modified", "sub/file", False),
            ("written", "sub/file", False),
            ("moved_from", "sub/file", False),
            ("moved_to", "file", False),
            ("created", "new", True),
            ("removed", "file", False),
        ]
        assert len([*await channel.list_dir(str(place))]) == 2

    agents.talk(agent, life)


def test_a_port_is_dialled_with_both_ends_of_the_stream(agent: agents.Agent) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def echo() -> None:
        peer, _ = listener.accept()
        with peer:
            data = b""
            while piece := peer.recv(1 << 16):
                data += piece
            peer.sendall(data[::-1])

    thread = threading.Thread(target=echo)
    thread.start()
    content = os.urandom(3 << 20)

    async def life(channel: Channel) -> None:
        async with await channel.dial(port) as connection:
            await connection.write(content)
            connection.write_end()
            assert await whole(aiter(connection)) == content[::-1]
        listener.close()
        with pytest.raises(FileError) as caught:
            await channel.dial(port)
        assert caught.value.detail["errno"] == errno.ECONNREFUSED

    try:
        agents.talk(agent, life)
    finally:
        thread.join()
        listener.close()


def test_a_helper_that_dies_is_infrastructure_s_fault(agent: agents.Agent, place: Path) -> None:
    async def life(channel: Channel) -> None:
        async with channel.watch(str(place)) as changes:
            (helper,) = agent.processes()
            os.kill(helper, 9)
            with pytest.raises(InfrastructureError):
                await anext(changes)
        await channel.ping()

    agents.talk(agent, life)


def test_the_clock_and_random_numbers_are_refused_where_they_are_the_node_s(
    tmp_path: Path,
) -> None:
    # Without the capabilities, as in a container.
    prefix = ("setpriv", "--bounding-set=-sys_time,-sys_admin")
    with agents.running(tmp_path, prefix=prefix) as agent:

        async def life(channel: Channel) -> None:
            with pytest.raises(UnsupportedError, match="clock"):
                await channel.step_clock()
            with pytest.raises(UnsupportedError, match="random"):
                await channel.reseed(b"seed" * 8)

        agents.talk(agent, life)


def test_random_numbers_are_reseeded(agent: agents.Agent) -> None:
    async def life(channel: Channel) -> None:
        await channel.reseed(os.urandom(32))

    agents.talk(agent, life)
