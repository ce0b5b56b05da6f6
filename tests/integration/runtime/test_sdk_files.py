"""Files, trees, changes and ports of real containers, by the SDK."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dsec_runtime import errors
from dsec_runtime.sdk import DSecClient, Sandbox
from dsec_runtime.spec import MIB
from tests.support.edges import args

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]

# Answers one request after another: its first line, its headers, its body of a known length.
SERVER = r"""
$| = 1; socket(S, 2, 1, 0) or die;
bind(S, pack("Sna4x8", 2, 8000, "\x7f\0\0\1")) or die $!; listen(S, 9); print "ready\n";
while (accept(C, S)) {
    my ($text, $size, $body) = ("", 0, "");
    while (<C>) { last if /^\r?\n$/; $text .= $_; $size = $1 if /^content-length: (\d+)/i; }
    read(C, $body, $size) if $size;
    $text .= "\n$body";
    print C "HTTP/1.1 201 Made\r\nX-Kind: perl\r\n";
    printf C "Content-Length: %d\r\n\r\n%s", length $text, $text;
    close C;
}
"""


@pytest.fixture
async def sandbox(client: DSecClient) -> AsyncIterator[Sandbox]:
    async with await client.run_container(args(workdir="/tmp")) as made:
        yield made


async def test_a_file_is_written_read_and_told_of(sandbox: Sandbox) -> None:
    files = sandbox.files
    info = await files.write("/srv/deep/file", "grüße\n", mode=0o640)
    assert (info.size_bytes, info.mode, info.kind) == (8, 0o640, "file")
    assert await files.read_text("/srv/deep/file") == "grüße\n"
    assert await files.read("/srv/deep/file", offset=2, length=2) == "ü".encode()
    assert (await sandbox.run_shell("stat -c '%a %s %u' /srv/deep/file")).text == "640 8 0\n"
    await files.write("relative", b"")
    assert (await sandbox.run_shell("ls /tmp")).text == "relative\n"
    await files.chmod("relative", 0o700)
    assert (await files.stat("/tmp/relative")).mode == 0o700


async def test_a_large_file_goes_both_ways_in_pieces(sandbox: Sandbox) -> None:
    data = os.urandom(MIB) * 20

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(data), 300_000):
            yield data[at : at + 300_000]

    await sandbox.files.write("/tmp/large", pieces())
    assert await sandbox.files.read("/tmp/large") == data


async def test_directories(sandbox: Sandbox) -> None:
    files = sandbox.files
    await files.make_dir("/srv/a/b")
    await files.write("/srv/a/file", b"x")
    await sandbox.run_shell("ln -s nowhere /srv/a/link", check=True)
    told = {info.path: info.kind for info in await files.list_dir("/srv/a")}
    assert told == {"/srv/a/b": "directory", "/srv/a/file": "file", "/srv/a/link": "symlink"}
    assert (await files.stat("/srv/a/link")).target == "nowhere"
    await files.move("/srv/a/file", "/srv/a/b/moved")
    assert not await files.exists("/srv/a/file")
    assert await files.exists("/srv/a/link")
    with pytest.raises(errors.FileError):
        await files.remove("/srv/a")
    await files.remove("/srv/a", recursive=True)
    assert not await files.exists("/srv/a")


@pytest.mark.parametrize("path", ["/no/such", "/etc/passwd/below"])
async def test_what_is_not_there_says_so(sandbox: Sandbox, path: str) -> None:
    for work in (sandbox.files.read(path), sandbox.files.stat(path), sandbox.files.list_dir(path)):
        with pytest.raises(errors.FileError) as raised:
            await work
        assert raised.value.detail["errno"] in (2, 20)


async def test_a_disk_that_is_full_is_told_as_that(sandbox: Sandbox) -> None:
    with pytest.raises(errors.DiskQuotaError):
        await sandbox.files.write("/big", bytes(100 * MIB))
    assert not await sandbox.files.exists("/big")


async def test_trees_go_up_and_down_as_they_are(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub/empty").mkdir(parents=True)
    (source / "sub/run").write_bytes(b"#!/bin/sh\necho ran\n")
    (source / "sub/run").chmod(0o755)
    (source / "large").write_bytes(os.urandom(3 * MIB))
    (source / "link").symlink_to("sub/run")
    moved: list[int] = []
    await sandbox.files.upload(source, "/srv/tree", on_progress=moved.append)
    assert moved == sorted(moved)
    assert moved[-1] >= 3 * MIB
    assert (await sandbox.run_shell("/srv/tree/link")).text == "ran\n"
    await sandbox.run_shell("ln -s /etc/passwd /srv/tree/out; mkfifo /srv/tree/pipe")
    skipped = await sandbox.files.download("/srv/tree", tmp_path / "back")
    assert "out" in skipped
    back = tmp_path / "back"
    assert (back / "large").read_bytes() == (source / "large").read_bytes()
    assert (back / "sub/run").stat().st_mode & 0o777 == 0o755
    assert (back / "sub/empty").is_dir()
    assert (back / "link").readlink() == Path("sub/run")
    assert not (back / "out").is_symlink()


async def test_one_file_goes_up_and_down(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"one")
    (tmp_path / "one").chmod(0o600)
    await sandbox.files.upload(tmp_path / "one", "/srv/one")
    assert (await sandbox.files.stat("/srv/one")).mode == 0o600
    await sandbox.files.download("/srv/one", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"one"


async def test_changes_are_told(sandbox: Sandbox) -> None:
    await sandbox.files.make_dir("/srv/w")
    async with sandbox.files.watch("/srv/w") as changes:
        await sandbox.run_shell("echo x > /srv/w/new; rm /srv/w/new", check=True)
        seen = []
        async for change in changes:
            seen.append((change.kind, change.path))
            if change.kind == "removed":
                break
    assert ("created", "new") in seen
    assert seen[-1] == ("removed", "new")
    with pytest.raises(errors.FileError):
        async with sandbox.files.watch("/no/such"):
            pass


@pytest.fixture
async def service(sandbox: Sandbox) -> AsyncIterator[Sandbox]:
    async with await sandbox.start(["perl", "-e", SERVER]) as process:
        assert (await anext(aiter(process))).data == b"ready\n"
        yield sandbox


async def test_a_port_is_forwarded(service: Sandbox) -> None:
    async with await service.ports.forward(8000) as forward:
        for _ in range(3):
            reader, writer = await asyncio.open_connection(forward.host, forward.port)
            writer.write(b"GET /way HTTP/1.0\r\nA: b\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 201 Made\r\n")
            assert answer.endswith(b"GET /way HTTP/1.0\r\nA: b\r\n\n")


async def test_a_port_where_nobody_listens(sandbox: Sandbox) -> None:
    async with await sandbox.ports.forward(9) as forward:
        reader, writer = await asyncio.open_connection(forward.host, forward.port)
        assert await reader.read() == b""
        writer.close()
        assert isinstance(forward.error, errors.FileError)
    async with sandbox.ports.http(9) as http:
        response = await http.get("/x")
        assert response.status_code == 404
        assert response.json()["code"] == "file_error"


async def test_http_is_handed_on(service: Sandbox) -> None:
    async with service.ports.http(8000) as http:
        response = await http.post("/a%20b?q=1&r=%2F", content=b"the body", headers={"X-A": "b"})
    assert (response.status_code, response.headers["x-kind"]) == (201, "perl")
    head, _, body = response.text.partition("\r\n\n")
    assert head.startswith("POST /a%20b?q=1&r=%2F HTTP/1.1\r\n")
    assert "x-a: b" in head.lower()
    assert "authorization" not in head.lower()
    assert body == "the body"
