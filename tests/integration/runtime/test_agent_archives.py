"""Strange archives: each is unpacked or refused, and nothing lands outside of its folder."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dsec_runtime.channel import Channel
from dsec_runtime.errors import FileError
from tests.support import agents, profiles

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[agents.Agent]:
    with agents.running(tmp_path_factory.mktemp("agent")) as running:
        yield running


_NAMES = st.one_of(
    st.sampled_from(["a", "a/b", "a/b/c", ".", "./a", "/a", "a/", "..", "a/../b", "n" * 180]),
    st.text("ab./", min_size=1, max_size=12),
)
_TYPES = st.sampled_from([b"0", b"1", b"2", b"5", b"3", b"6", b"7", b"x", b"g", b"L", b"K", b"Z"])


@st.composite
def _members(draw: st.DrawFn) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(draw(_NAMES))
    member.type = draw(_TYPES)
    member.mode = draw(st.integers(0, 0o7777))
    member.linkname = draw(_NAMES)
    member.mtime = draw(st.sampled_from([0, 1.5, 2**40]))
    member.uid = draw(st.sampled_from([0, 1000, 2**31]))
    content = draw(st.one_of(st.binary(max_size=700), st.just(b"14 path=a/b/c\n")))
    member.size = len(content) if draw(st.booleans()) else draw(st.integers(0, 2**33))
    return member, content


def _checksummed(block: bytes) -> bytes:
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    return block[:148] + b"%06o\0 " % total + block[156:]


@st.composite
def _archives(draw: st.DrawFn) -> bytes:
    parts = []
    for member, content in draw(st.lists(_members(), max_size=5)):
        header = member.tobuf(draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])))
        if draw(st.booleans()):
            # One byte of the last block, with a sum that is right again.
            at = draw(st.integers(0, 511))
            block = bytearray(header[-512:])
            block[at] = draw(st.integers(0, 255))
            header = header[:-512] + _checksummed(bytes(block))
        parts.append(header + content + bytes(-len(content) % 512))
    data = b"".join(parts) + draw(st.sampled_from([bytes(1024), bytes(512), b""]))
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@hypothesis_settings(profiles.fewer, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=_archives())
def test_any_archive_is_unpacked_or_refused(
    agent: agents.Agent, tmp_path: Path, data: bytes
) -> None:
    place = tmp_path / "place"

    async def life(channel: Channel) -> None:
        with contextlib.suppress(FileError):
            await channel.upload_tree(str(place), data, owners=True)

    agents.talk(agent, life)
    assert os.listdir(tmp_path) in ([], ["place"])
    shutil.rmtree(place, ignore_errors=True)


@hypothesis_settings(profiles.fewest, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.text("abü", min_size=1, max_size=70), max_size=6), data=st.data())
def test_what_is_packed_is_read_by_others(
    agent: agents.Agent, tmp_path: Path, names: list[str], data: st.DataObject
) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    contents = {}
    for name in names:
        path = place.joinpath(*[name] * data.draw(st.integers(1, 4)))
        if not path.exists() and not any(above.is_file() for above in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.draw(st.binary(max_size=1500)))
            contents[str(path.relative_to(place))] = path.read_bytes()
    found = {}

    async def life(channel: Channel) -> None:
        packed = b"".join([piece async for piece in channel.download_tree(str(place))])
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive:
                if member.isfile():
                    file = archive.extractfile(member)
                    assert file is not None
                    found[os.path.normpath(member.name)] = file.read()

    agents.talk(agent, life)
    assert found == contents
    shutil.rmtree(place)
