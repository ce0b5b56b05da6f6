"""ADD: archives and files from the web; and what COPY and ADD leave out or keep of paths."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import zstandard

from dsec_layers.errors import BuildError, CorruptError, InvalidInputError
from dsec_layers.model.tree import EntryKind
from tests.support.builds import Built, Workshop, names
from tests.support.web import Page, Web, serving

pytestmark = pytest.mark.root

Compress = Callable[[bytes], bytes]


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as running:
        yield running


def archive(names: dict[str, bytes], **attributes: object) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in names.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.mode = len(content), 5, 7, 0o751
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def scratch(workshop: Workshop, *lines: str) -> Built:
    return workshop.build("FROM scratch\n" + "".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, lzma.compress, bz2.compress, zstandard.compress]
)
def test_archives_are_unpacked(workshop: Workshop, compress: Compress) -> None:
    workshop.write("x").write_bytes(compress(archive({"d/f": b"one", "g": bytes(9000) + b"end"})))
    built = scratch(workshop, "ADD x /to")
    assert {path: built.files[path] for path in ("to/d/f", "to/g")} == {
        "to/d/f": b"one",
        "to/g": bytes(9000) + b"end",
    }
    entry = built.entries["to/d/f"]
    assert (entry.uid, entry.mode, entry.mtime_ns) == (7, 0o751, 5 * 10**9)
    assert scratch(workshop, "ADD --chown=9 x /to").entries["to/d/f"].uid == 9
    assert names(scratch(workshop, "COPY x /to/")) == ["to/x"]
    assert names(scratch(workshop, "ADD --unpack=false x /to/")) == ["to/x"]


def test_two_archives_and_a_file(workshop: Workshop) -> None:
    workshop.write("x.tar").write_bytes(archive({"f": b"one", "x": b""}))
    workshop.write("y.tar").write_bytes(archive({"f": b"two"}))
    workshop.write("z.txt", "text")
    assert scratch(workshop, "ADD x.tar y.tar z.txt /").files == {
        "f": b"two",
        "x": b"",
        "z.txt": b"text",
    }


@pytest.mark.parametrize(
    "head", [b"\x1f\x8b\x08", b"BZh9", b"", gzip.compress(b"no tar", mtime=0), b"a" * 600]
)
def test_what_is_no_archive_is_copied(workshop: Workshop, head: bytes) -> None:
    workshop.write("x.tar.gz").write_bytes(head)
    assert scratch(workshop, "ADD x.tar.gz /").files == {"x.tar.gz": head}


def test_no_member_leaves_the_root(workshop: Workshop) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    workshop.write("link.tar").write_bytes(stream.getvalue())
    workshop.write("x.tar").write_bytes(archive({"out/f": b"1", "/abs": b"2"}))
    built = scratch(workshop, "ADD link.tar /", "ADD x.tar /")
    assert built.files == {"etc/f": b"1", "abs": b"2"}
    workshop.write("x.tar").write_bytes(archive({"../f": b"1"}))
    with pytest.raises(InvalidInputError, match=r"\.\./f"):
        scratch(workshop, "ADD x.tar /")


def test_an_archive_that_is_cut_short(workshop: Workshop) -> None:
    workshop.write("x.tar").write_bytes(archive({"f": bytes(9000)})[:1024])
    with pytest.raises(CorruptError, match=r"Layerfile:3: step 1/1 ADD x.tar /: x.tar"):
        scratch(workshop, "ADD x.tar /")


def test_what_is_unpacked_counts(workshop: Workshop) -> None:
    workshop.write("x.tar").write_bytes(archive({"f": b"one"}))
    assert scratch(workshop, "ADD x.tar /").cached == [False]
    assert scratch(workshop, "COPY x.tar /").cached == [False]
    assert scratch(workshop, "ADD x.tar /").cached == [True]
    workshop.write("x.tar").write_bytes(archive({"f": b"one"}, mtime=6))
    assert scratch(workshop, "ADD x.tar /").cached == [False]


def test_files_from_the_web(workshop: Workshop, web: Web) -> None:
    modified = {"Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"}
    web.pages["/a.tar?v=1"] = Page(archive({"f": b"one"}), headers=modified)
    line = f"ADD {web.address}/a.tar?v=1 /d/"
    built = scratch(workshop, line)
    entry = built.entries["d/a.tar"]
    assert (entry.mode, entry.uid, entry.mtime_ns) == (0o600, 0, 784111777 * 10**9)
    assert scratch(workshop, line).cached == [True]
    web.pages["/a.tar?v=1"] = Page(archive({"f": b"two"}), headers=modified)
    assert scratch(workshop, line).cached == [False]
    assert names(scratch(workshop, line.replace("/d/", "/d"))) == ["d"]
    assert scratch(workshop, line.replace("ADD", "ADD --unpack")).files == {"d/f": b"two"}


def test_with_a_checksum_nothing_is_fetched_twice(workshop: Workshop, web: Web) -> None:
    web.pages["/a"] = Page(b"one")
    digest = hashlib.sha256(b"one").hexdigest()
    lines = [f"ARG SUM={digest}", f"ADD --checksum=sha256:$SUM --chmod=0755 {web.address}/a /"]
    built = scratch(workshop, *lines)
    assert (built.files, built.entries["a"].mode) == ({"a": b"one"}, 0o755)
    assert scratch(workshop, *lines).cached == [True]
    assert web.asked == ["/a"]
    with pytest.raises(CorruptError, match=f"has the checksum sha256:{digest}"):
        scratch(workshop, f"ADD --checksum=sha256:{'0' * 64} {web.address}/a /")


def test_what_the_web_does_not_give(workshop: Workshop, web: Web) -> None:
    with pytest.raises(BuildError, match=r"Layerfile:3: step 1/1 ADD .*404"):
        scratch(workshop, f"ADD {web.address}/none /")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ADD https://host/a.git /", "git repository"),
        ("ADD git@host:a.git /", "git repository"),
        ("ADD ftp://host/a /", "not of the form"),
        ("ADD http://host/ /d/", "has no file name"),
        ("ADD --checksum=sha256:0 x /", "one URL"),
        ("ADD --checksum=sha256:0 http://host/a /", "not of the form ALGORITHM:HEX"),
        ("COPY --exclude=[ . /", "malformed pattern"),
    ],
)
def test_mistakes_name_the_line(workshop: Workshop, line: str, message: str) -> None:
    workshop.write("x")
    with pytest.raises(InvalidInputError, match=message) as caught:
        scratch(workshop, line)
    assert (caught.value.where or "").endswith("Layerfile:3")


@dataclass(frozen=True)
class Case:
    line: str
    paths: list[str]


@pytest.mark.parametrize(
    "case",
    [
        Case("COPY --exclude=*.md . /", ["d/in/b.txt", "d/in/c.md", "d/z.txt", "a.txt"]),
        Case("COPY --exclude=**/*.md --exclude=d/z.* . /", ["d/in/b.txt", "a.txt"]),
        Case("COPY --exclude=d --exclude=!d/in/*.md . /", ["a.txt", "d/in/c.md", "e.md"]),
        Case("COPY --exclude=*.md a.txt e.md /x/", ["x/a.txt"]),
        Case("COPY --exclude=in d /x", ["x/z.txt"]),
        Case("COPY --parents d/in/b.txt e.md /x", ["x/d/in/b.txt", "x/e.md"]),
        Case("COPY --parents ./d/./in/*.txt /x/", ["x/in/b.txt"]),
        Case("COPY --parents **/*.md /x/", ["x/d/in/c.md", "x/e.md"]),
        Case("COPY --parents --exclude=*/*/*.md d /x/", ["x/d/in/b.txt", "x/d/z.txt"]),
        Case("COPY --parents d/./ /x/", ["x/in/b.txt", "x/in/c.md", "x/z.txt"]),
        Case("COPY --parents no* a.txt /", ["a.txt"]),
        Case("COPY --link a.txt /", ["a.txt"]),
    ],
    ids=lambda case: case.line,
)
def test_what_is_left_out_and_what_keeps_its_path(workshop: Workshop, case: Case) -> None:
    for path in ("a.txt", "d/in/b.txt", "d/in/c.md", "d/z.txt", "e.md"):
        workshop.write(path)
    (workshop.context / "d").chmod(0o700)
    built = scratch(workshop, case.line)
    assert sorted(names(built)) == sorted(case.paths)
    parent = built.entries.get("x/d")
    assert parent is None or (parent.mode, parent.kind) == (0o700, EntryKind.DIRECTORY)


def test_parents_of_what_is_not_there(workshop: Workshop) -> None:
    workshop.write("d/a")
    for pattern in ("d/b", "e/./a", "d/./a/../b"):
        with pytest.raises(InvalidInputError, match="is not in the context"):
            scratch(workshop, f"COPY --parents {pattern} /")


def test_modes_in_letters(workshop: Workshop) -> None:
    workshop.write("d/f", mode=0o600)
    workshop.write("d/run", mode=0o700)
    entries = scratch(workshop, "COPY --chmod=u=rwX,go=rX d /d").entries
    assert [entries[path].mode for path in ("d", "d/f", "d/run")] == [0o755, 0o644, 0o755]
