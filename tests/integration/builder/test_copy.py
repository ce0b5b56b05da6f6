"""COPY and ADD: what arrives where, with which attributes."""

from __future__ import annotations

import os
import stat

import pytest

from dsec_layers.builder.build import build
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.tree import EntryKind
from tests.support.builds import Workshop, names

pytestmark = pytest.mark.root


def tree(workshop: Workshop, *lines: str) -> dict[str, str]:
    """The files of FROM scratch and these lines, with their contents."""
    built = workshop.build("FROM scratch\n" + "\n".join(lines) + "\n")
    return {path: content.decode() for path, content in built.files.items()}


@pytest.fixture
def files(workshop: Workshop) -> Workshop:
    workshop.write("a.txt", "a")
    workshop.write("b.txt", "b")
    workshop.write("d/e/f", "f")
    workshop.write("d/g", "g")
    return workshop


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("COPY a.txt /x", {"x": "a"}),
        ("COPY a.txt /x/", {"x/a.txt": "a"}),
        ("COPY a.txt /", {"a.txt": "a"}),
        ("COPY a.txt x/y/z", {"x/y/z": "a"}),
        ("COPY a.txt b.txt /x/", {"x/a.txt": "a", "x/b.txt": "b"}),
        ("COPY d /x", {"x/e/f": "f", "x/g": "g"}),
        ("COPY d/ /x/", {"x/e/f": "f", "x/g": "g"}),
        ("COPY d/. /", {"e/f": "f", "g": "g"}),
        ("COPY d a.txt /x/", {"x/e/f": "f", "x/g": "g", "x/a.txt": "a"}),
        ("COPY *.txt /x/", {"x/a.txt": "a", "x/b.txt": "b"}),
        ("COPY [^b].txt /x/", {"x/a.txt": "a"}),
        ("COPY ?.tx? none* /x/", {"x/a.txt": "a", "x/b.txt": "b"}),
        ("COPY */e /x/", {"x/f": "f"}),
        ("COPY */*/f /x", {"x": "f"}),
        ("COPY /a.txt ../b.txt ./d/../d/g /x/", {"x/a.txt": "a", "x/b.txt": "b", "x/g": "g"}),
        ('COPY ["a.txt", "/x y"]', {"x y": "a"}),
        ("ADD a.txt d /x/", {"x/a.txt": "a", "x/e/f": "f", "x/g": "g"}),
    ],
)
def test_destinations(files: Workshop, line: str, result: dict[str, str]) -> None:
    assert tree(files, line) == result


def test_everything_but_what_is_ignored(files: Workshop) -> None:
    files.write(".dockerignore", "# no text\n*.txt\n!b.txt\nd/\n!d/e/**\n.dockerignore\n")
    built = files.build("FROM scratch\nCOPY . /x\n")
    assert names(built) == ["x/b.txt", "x/d/e/f"]
    with pytest.raises(InvalidInputError, match=r"a\.txt is not in the context") as caught:
        tree(files, "COPY a.txt /x")
    assert "dockerignore" in (caught.value.hint or "")
    assert tree(files, "COPY *.txt d/? /x/") == {"x/b.txt": "b", "x/f": "f"}


def test_ignore_rules_beside_the_layerfile_win(files: Workshop) -> None:
    files.write(".dockerignore", "a.txt\n")
    (files.folder / "Layerfile.dockerignore").write_text("b.txt\n")
    assert tree(files, "COPY *.txt /x/") == {"x/a.txt": "a"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("COPY none /x", "step 1/1 COPY none /x: none is not in the context"),
        ("COPY none* /x/", r"none\* is not in the context"),
        ("COPY a.txt b.txt /x", "several sources, and /x is not a directory"),
        ("COPY *.txt /x", "several sources"),
        ("COPY --chown=nobody a.txt /x", "no user 'nobody'"),
    ],
)
def test_mistakes_name_the_line(files: Workshop, line: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        tree(files, "", line)
    assert caught.value.where == f"{files.folder}/Layerfile:4"


def test_a_collision_of_file_and_directory(files: Workshop) -> None:
    files.write("other/e", "file")
    assert tree(files, "COPY d /x", "COPY other /x") == {"x/e": "file", "x/g": "g"}
    assert tree(files, "COPY d /x", "COPY other/e /x/") == {"x/e": "file", "x/g": "g"}
    assert tree(files, "COPY a.txt /x/e", "COPY d /x") == {"x/e/f": "f", "x/g": "g"}
    with pytest.raises(InvalidInputError, match="is not a directory"):
        tree(files, "COPY a.txt /x", "COPY d /x")


def test_attributes_come_along(workshop: Workshop) -> None:
    plain = workshop.write("d/f", "f", 0o640)
    os.chown(plain, 7, 8)
    os.setxattr(plain, "user.a", b"1")
    os.utime(plain, ns=(5, 123456789))
    (workshop.context / "d").chmod(0o1770)
    os.setxattr(workshop.context / "d", "user.d", b"2")
    os.utime(workshop.context / "d", ns=(5, 987654321))
    built = workshop.build("FROM scratch\nCOPY d /x/y\nCOPY d/f /z\n")
    file, folder, made = (built.entries[name] for name in ("x/y/f", "x/y", "x"))
    assert (file.mode, file.uid, file.gid, file.mtime_ns) == (0o640, 0, 0, 123456789)
    assert file.xattrs == ((b"user.a", b"1"),)
    assert (folder.mode, folder.uid, folder.mtime_ns) == (0o1770, 0, 987654321)
    assert folder.xattrs == ((b"user.d", b"2"),)
    assert (made.mode, made.uid, made.gid) == (0o755, 0, 0)
    assert built.entries["z"].xattrs == ((b"user.a", b"1"),)


def test_owner_and_mode_can_be_given(workshop: Workshop) -> None:
    workshop.write("d/f")
    (workshop.context / "d/l").symlink_to("f")
    text = "FROM base/small\nCOPY --chown=user:wheel --chmod=0751 d /new/x\nCOPY --chown=5 d/f /g\n"
    built = workshop.build(text + "COPY --chown=user d/f /h\nCOPY --chown=5:6 <<i /\ni\n")
    owners = {name: (entry.uid, entry.gid) for name, entry in built.entries.items()}
    assert {owners[name] for name in ("new", "new/x", "new/x/f", "new/x/l")} == {(1000, 10)}
    assert (owners["g"], owners["h"], owners["i"]) == ((5, 5), (1000, 1001), (5, 6))
    assert built.entries["new/x"].mode == built.entries["new/x/f"].mode == 0o751
    assert built.entries["new"].mode == 0o755


def test_existing_directories_keep_their_attributes_at_the_top_only(workshop: Workshop) -> None:
    workshop.write("d/e/f")
    (workshop.context / "d").chmod(0o700)
    (workshop.context / "d/e").chmod(0o711)
    text = "FROM scratch\nCOPY --chmod=0750 d /x\nCOPY d /x\n"
    built = workshop.build(text)
    assert built.entries["x"].mode == 0o750
    assert built.entries["x/e"].mode == 0o711


def test_all_kinds_of_files(workshop: Workshop) -> None:
    folder = workshop.write("d/f", "f").parent
    (folder / "link").symlink_to("/nowhere")
    os.mkfifo(folder / "fifo", 0o600)
    os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(folder / "white", stat.S_IFCHR | 0o644, os.makedev(0, 0))
    os.mknod(folder / "disk", stat.S_IFBLK | 0o600, os.makedev(8, 1))
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o755)
    os.setxattr(folder / "f", "trusted.overlay.opaque", b"y")
    os.link(folder / "f", folder / "again")
    os.link(folder / "fifo", folder / "fifo2")
    built = workshop.build("FROM scratch\nCOPY d /x\nFROM 0\nCOPY --from=0 /x /y\n")
    for top in ("x", "y"):
        entries = {name: built.entries[f"{top}/{name}"] for name in os.listdir(folder)}
        assert entries["link"].target == b"/nowhere"
        assert entries["fifo"].kind is EntryKind.FIFO
        assert (entries["null"].major, entries["null"].minor) == (1, 3)
        assert (entries["white"].kind, entries["white"].major) == (EntryKind.CHAR, 0)
        assert entries["disk"].kind is EntryKind.BLOCK
        assert entries["socket"].kind is EntryKind.SOCKET
        assert entries["f"].xattrs == ((b"trusted.overlay.opaque", b"y"),)
        assert entries["f"].link_group == entries["again"].link_group != 0
        assert entries["fifo"].link_group == entries["fifo2"].link_group != 0


def test_holes_stay_holes(workshop: Workshop) -> None:
    place = workshop.write("sparse", "head")
    with place.open("r+b") as file:
        file.truncate(1 << 34)
        file.seek(1 << 30)
        file.write(b"middle")
    request = workshop.request("FROM scratch\nCOPY sparse /x\n")
    with build(request, workshop.layers) as result:
        status = os.stat(result.source.contents[b"x"].path)
        assert status.st_size == 1 << 34
        assert status.st_blocks * 512 < 1 << 20
        with open(result.source.contents[b"x"].path, "rb") as file:
            assert file.read(4) == b"head"
            file.seek(1 << 30)
            assert file.read(7) == b"middle\0"


def test_names_that_are_not_text(workshop: Workshop) -> None:
    workshop.context.mkdir()
    name = b"new\nline \xff\\\"'" + b"x" * 200
    with open(os.path.join(os.fsencode(workshop.context), name), "wb") as file:
        file.write(b"1")
    built = workshop.build("FROM scratch\nCOPY . /d/\nCOPY new* /e/\n")
    assert [entry.name for entry in built.entries.values()].count(name) == 2


def test_the_destination_may_be_a_link(workshop: Workshop) -> None:
    """`COPY d /bin` where /bin leads to usr/bin."""
    workshop.write("root/usr/bin/old", "old")
    (workshop.context / "root/bin").symlink_to("usr/bin")
    (workshop.context / "root/lost").symlink_to("../../var/made/there")
    (workshop.context / "root/file").symlink_to("/usr/bin/old")
    workshop.write("d/tool", "tool")
    workshop.write("tree/bin/deep", "deep")
    built = workshop.build(
        "FROM scratch\nCOPY root /\nCOPY d /bin\nCOPY d/tool /bin/second\nCOPY tree /\n"
        "COPY d /lost\nCOPY d/tool /file\n"
    )
    assert built.entries["bin"].target == b"usr/bin"
    assert built.files == {
        "usr/bin/old": b"tool",  # written through /file
        "usr/bin/tool": b"tool",
        "usr/bin/second": b"tool",
        "usr/bin/deep": b"deep",
        "var/made/there/tool": b"tool",
    }


def test_a_file_replaces_a_link_of_its_name_in_a_directory(workshop: Workshop) -> None:
    workshop.write("root/target", "kept")
    (workshop.context / "root/name").symlink_to("target")
    workshop.write("name", "new")
    built = workshop.build("FROM scratch\nCOPY root /\nCOPY name /\n")
    assert built.files == {"target": b"kept", "name": b"new"}


def test_no_link_leads_out(workshop: Workshop) -> None:
    secret = workshop.folder / "secret"
    secret.write_text("secret")
    outside = workshop.folder / "outside"
    outside.mkdir()
    workshop.write("d/f", "f")
    (workshop.context / "absolute").symlink_to(secret)
    (workshop.context / "relative").symlink_to("../secret")
    (workshop.context / "root").mkdir()
    (workshop.context / "root/out").symlink_to(outside)
    (workshop.context / "root/up").symlink_to("../../../../../../.." + str(outside))
    for name in ("absolute", "relative"):
        with pytest.raises(InvalidInputError, match="is not in the context"):
            tree(workshop, f"COPY {name} /x")
    built = workshop.build("FROM scratch\nCOPY root /\nCOPY d /out\nCOPY d/f /up/g\n")
    assert list(outside.iterdir()) == []
    inside = str(outside).lstrip("/")
    assert set(built.files) == {f"{inside}/f", f"{inside}/g"}


def test_links_as_sources_are_followed_and_below_they_are_kept(workshop: Workshop) -> None:
    workshop.write("d/f", "f")
    (workshop.context / "d/inner").symlink_to("f")
    (workshop.context / "to-file").symlink_to("d/f")
    (workshop.context / "to-folder").symlink_to("/d")
    built = workshop.build("FROM scratch\nCOPY to-file /x/\nCOPY to-folder /y\n")
    assert built.files == {"x/to-file": b"f", "y/f": b"f"}
    assert built.entries["y/inner"].target == b"f"


def test_heredocs_become_files(workshop: Workshop) -> None:
    workshop.write("plain", "p")
    text = (
        "FROM scratch\nENV x=1\nCOPY <<one <<'two' plain /d/\n$x \\$x\none\n$x\ntwo\n"
        "COPY --chmod=0755 <<-E /d/script\n\t#!/bin/sh\n\techo\n\tE\n"
    )
    built = workshop.build(text)
    assert built.files == {
        "d/one": b"1 $x\n",
        "d/two": b"$x\n",
        "d/plain": b"p",
        "d/script": b"#!/bin/sh\necho\n",
    }
    assert (built.entries["d/one"].mode, built.entries["d/script"].mode) == (0o644, 0o755)


def test_copy_from_a_stage_keeps_owner_mode_and_time(workshop: Workshop) -> None:
    place = workshop.write("f", "f", 0o4711)
    os.utime(place, ns=(1, 42))
    text = (
        "FROM scratch AS a\nCOPY --chown=3:4 f /lib/f\n"
        "FROM a AS b\nCOPY f /lib/g\n"
        "FROM scratch\nCOPY --from=b /lib /usr/lib\nCOPY --from=0 --chown=9:9 lib/f /\n"
    )
    built = workshop.build(text)
    entry = built.entries["usr/lib/f"]
    assert (entry.uid, entry.gid, entry.mode, entry.mtime_ns) == (3, 4, 0o4711, 42)
    assert built.entries["f"].uid == 9
    assert set(built.files) == {"usr/lib/f", "usr/lib/g", "f"}


def test_copy_from_a_layer(workshop: Workshop) -> None:
    built = workshop.build("FROM scratch\nCOPY --from=base/small /etc/pass* /x/\n")
    assert built.files["x/passwd"].startswith(b"root:")
    with pytest.raises(InvalidInputError, match="/none is not in the layer base/small"):
        tree(workshop, "COPY --from=base/small /none /x/")


def test_many_layers_of_copies(workshop: Workshop) -> None:
    for number in range(200):
        workshop.write(f"f{number}", str(number))
    lines = "".join(f"COPY f{number} /d/\n" for number in range(200))
    built = workshop.build(f"FROM scratch\n{lines}COPY f0 /d/f199\n")
    assert len(built.files) == 200
    assert built.files["d/f199"] == b"0"


def test_the_umask_of_who_builds_changes_nothing(files: Workshop) -> None:
    before = os.umask(0o077)
    try:
        built = files.build("FROM scratch\nCOPY a.txt /x/\nWORKDIR /w\nCOPY <<f /y/\nf\n")
    finally:
        os.umask(before)
    modes = {path: entry.mode for path, entry in built.entries.items() if entry.path != b"x/a.txt"}
    assert modes == {"": 0o755, "x": 0o755, "w": 0o755, "y": 0o755, "y/f": 0o644}


def test_the_hint_speaks_of_a_dockerignore_that_is_there(files: Workshop) -> None:
    for text, hint in (("", None), ("*.md\n", "a .dockerignore may leave it out")):
        files.write(".dockerignore", text)
        with pytest.raises(InvalidInputError, match="nothing is not in the context") as caught:
            tree(files, "COPY nothing /x")
        assert caught.value.hint == hint


def test_further_contexts_by_name(workshop: Workshop) -> None:
    other = workshop.folder / "other"
    other.mkdir()
    for name in ("f", "left-out"):
        (other / name).write_text(name)
        os.chown(other / name, 7, 7)
    (other / ".dockerignore").write_text("left-out\n")
    contexts = {"more": other}
    text = "FROM base/small AS more\nRUN false\nFROM scratch\nCOPY --from=More . /x/\n"
    built = workshop.build(text, contexts=contexts)
    assert set(built.files) == {"x/f", "x/.dockerignore"}
    assert built.entries["x/f"].uid == 0
    text = "FROM scratch\nCOPY --from=more left-out /\n"
    with pytest.raises(InvalidInputError, match="left-out is not in the context more"):
        workshop.build(text, contexts=contexts)
    with pytest.raises(InvalidInputError, match="'more' is a build context, not a layer"):
        workshop.build("FROM more\n", contexts=contexts)
