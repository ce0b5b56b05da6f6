"""RUN: what a command sees, what it leaves, and what happens when it fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsec_layers.builder.build import build
from dsec_layers.builder.events import StepDone, StepOutput, StepStarted
from dsec_layers.builder.request import Lent
from dsec_layers.errors import BuildError, InvalidInputError, NotFoundError
from dsec_layers.linux.ocispec import Bind
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import EntryKind
from tests.support.builds import FolderLayer, Workshop, names

pytestmark = [pytest.mark.root, pytest.mark.oci]

WORKSPACE = "LAYER workspace w\n"


def test_a_base_holds_the_whole_tree(workshop: Workshop) -> None:
    built = workshop.build("FROM base/small\nRUN echo hi > /hi; rm /etc/group; mkdir /d\n")
    assert built.files["hi"] == b"hi\n"
    assert "bin/sh" in built.files
    assert "etc/group" not in built.entries
    assert built.entries["d"].kind is EntryKind.DIRECTORY
    assert EntryKind.WHITEOUT not in {entry.kind for entry in built.entries.values()}
    assert built.result.base_digest


def test_a_workspace_holds_what_it_adds(workshop: Workshop) -> None:
    text = "FROM base/small\nRUN echo hi > /hi; rm /etc/group\nRUN rm /hi; echo more > /etc/more\n"
    built = workshop.build(text, head=WORKSPACE)
    assert names(built) == ["etc/group", "etc/more"]
    assert built.entries["etc/group"].kind is EntryKind.WHITEOUT
    assert not built.entries["etc"].opaque


def test_what_one_step_makes_and_another_removes_leaves_nothing(workshop: Workshop) -> None:
    """In a directory of its own overlayfs would list a whiteout as a file."""
    text = (
        "FROM base/small\nRUN mkdir /own /tmp/d && touch /own/a /tmp/a /tmp/d/a\n"
        "RUN rm /own/a /tmp/a /bin/ls; rm -r /tmp/d; rm -r /root; mkdir /root; echo > /root/a\n"
        "RUN rm /root/a; rm /etc/passwd; mkdir /etc/passwd; echo > /etc/passwd/a\n"
        "RUN rm /etc/passwd/a\n"
    )
    built = workshop.build(text, head=WORKSPACE)
    assert names(built) == ["bin/ls"]
    assert built.entries["bin/ls"].kind is EntryKind.WHITEOUT
    assert built.entries["own"].kind is built.entries["etc/passwd"].kind is EntryKind.DIRECTORY


def test_a_replaced_directory_is_opaque(workshop: Workshop) -> None:
    text = "FROM base/small\nRUN mkdir /a && echo 1 > /a/f\nRUN rm -rf /a; mkdir /a\n"
    assert names(workshop.build(text), "a") == []
    text = "FROM base/small\nRUN rm -rf /root; mkdir /root; echo 1 > /root/own\n"
    built = workshop.build(text, head=WORKSPACE)
    assert built.entries["root"].opaque
    assert names(built) == ["root/own"]


def test_a_layer_on_one_of_its_kind_stands_for_both(workshop: Workshop) -> None:
    upper = workshop.folder / "upper"
    (upper / "w").mkdir(parents=True)
    (upper / "w/old").write_text("old")
    (upper / "w/gone").write_text("gone")
    run = RunConfig(env={"W": "1", "KEEP": "k"}, cmd=("low",))
    layer = FolderLayer(upper, run, below="base/small")
    workshop.layers.layers["workspace/low"] = layer
    text = "FROM workspace/low\nENV W=2\nRUN cat /w/old; rm /w/gone; echo new > /w/new\n"
    built = workshop.build(text, head=WORKSPACE)
    assert built.output == "old"
    assert {path: built.files[path] for path in names(built) if path in built.files} == {
        "w/old": b"old",
        "w/new": b"new\n",
    }
    assert "w/gone" not in built.entries
    assert built.result.run == RunConfig(env={"W": "2", "KEEP": "k"}, cmd=("low",))
    assert built.result.base_digest == str(workshop.layers.digest("base/small"))
    assert built.result.parent_digest == str(workshop.layers.digest("workspace/low"))


def test_what_a_command_sees(workshop: Workshop) -> None:
    built = workshop.build(
        "FROM base/small\nARG A=1\nENV B=2\nWORKDIR /w/d\nUSER user\n"
        'RUN echo "$A$B $PWD $(id -u):$(id -g) $SOURCE_DATE_EPOCH $HOME"\n',
        epoch=5,
    )
    assert built.output == "12 /w/d 1000:1001 5 /home/user\n"
    assert built.entries["w/d"].uid == 0


def test_forms_of_commands(workshop: Workshop) -> None:
    built = workshop.build(
        'FROM base/small\nRUN ["sh", "-c", "echo $0 exec", "arg"]\n'
        "RUN echo continued \\\n  # not part of it\n\n  line\n"
        "RUN <<EOF\necho one $HOME\nx='a  b'\necho \"$x\"\nEOF\n"
        "RUN <<'EOF' sh\necho 'two' $HOME\nEOF\n"
        "RUN cat <<A - <<-'B'\n$HOME\nA\n\t$HOME\nB\n"
        "RUN <<EOF\n#!/bin/cat\nas it is $HOME\nEOF\n"
        'SHELL ["/bin/sh", "-ec"]\nRUN <<EOF\nfalse || echo three\nEOF\n'
    )
    assert built.output == (
        "arg exec\ncontinued line\none /root\na  b\ntwo /root\n$HOME\n"
        "#!/bin/cat\nas it is $HOME\nthree\n"
    )


def test_the_network_can_be_taken_away(workshop: Workshop) -> None:
    text = "FROM base/small\nRUN {} cat /proc/net/dev | grep -c :\n"
    assert workshop.build(text.format("--network=none")).output == "1\n"
    assert int(workshop.build(text.format("")).output) > 1
    assert workshop.build(text.format("--network=host")).cached == [True]


def test_nothing_of_the_container_stays(workshop: Workshop) -> None:
    script = workshop.folder / "lent"
    script.write_text("lent")
    lent = Lent((Bind(script, "/opt/lent/file"),), {"LENT": "yes"})
    text = "FROM base/small\nRUN cat /opt/lent/file; echo $LENT; echo > /new\n"
    built = workshop.build(text, head=WORKSPACE, lend=lambda rootfs, folder: lent)
    assert built.output == "lentyes\n"
    assert list(built.entries) == ["", "new"]
    again = workshop.build(text, head=WORKSPACE)
    assert again.cached == [True]  # what is lent is no input


def test_from_scratch_with_files_of_the_context(workshop: Workshop) -> None:
    text = "FROM scratch\nCOPY --from=base/small / /\nRUN echo 1 > /etc/one\n"
    built = workshop.build(text)
    assert built.files["etc/one"] == b"1\n"
    assert "proc" not in built.entries


def test_events_tell_what_goes_on(workshop: Workshop) -> None:
    built = workshop.build("FROM base/small\nRUN echo out; echo err >&2\nWORKDIR /w\n")
    started = [event for event in built.events if isinstance(event, StepStarted)]
    assert [(e.number, e.total, e.title) for e in started] == [
        (1, 2, "RUN echo out; echo err >&2"),
        (2, 2, "WORKDIR /w"),
    ]
    assert started[0].where.endswith("Layerfile:3")
    assert {event.number for event in built.events if isinstance(event, StepOutput)} == {1}
    assert [event.number for event in built.events if isinstance(event, StepDone)] == [1, 2]
    assert sorted(built.output.split()) == ["err", "out"]


def test_a_command_that_fails(workshop: Workshop) -> None:
    lines = "FROM base/small\nRUN echo fine\n\nRUN echo said; echo last >&2; \\\n    cat /none\n"
    with pytest.raises(BuildError) as caught:
        workshop.build(lines)
    message = caught.value.message
    assert "Layerfile:5: step 2/2 failed with status 1: RUN echo said;" in message
    assert message.splitlines()[1:3] == ["    said", "    last"]
    assert "/none" in message.splitlines()[3]
    mended = workshop.build(lines.replace("cat /none", "true"))
    assert mended.cached == [True, False]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('RUN ["/none"]', "status 127"),
        ('RUN ["/etc/passwd"]', "status 126"),
        ("RUN sh -c 'kill -9 $$'; exit $?", "killed by signal 9"),
        ("RUN exit 300", "status 44"),
    ],
)
def test_other_bad_ends(workshop: Workshop, line: str, message: str) -> None:
    with pytest.raises(BuildError, match=f"step 1/1 .*{message}"):
        workshop.build(f"FROM base/small\n{line}\n")


def test_a_layerfile_that_is_not_there(workshop: Workshop) -> None:
    request = workshop.request("FROM base/small\n")
    request.layerfile.unlink()
    with pytest.raises(NotFoundError, match="no Layerfile at"), build(request, workshop.layers):
        pass


def test_an_unknown_user(workshop: Workshop) -> None:
    with pytest.raises(InvalidInputError, match="no user 'nobody'") as caught:
        workshop.build("FROM base/small\nUSER nobody\nRUN true\n")
    assert (caught.value.where or "").endswith("Layerfile:4")


def test_a_background_process_ends_with_its_step(workshop: Workshop) -> None:
    """It holds the output open and writes later; both must not matter."""
    text = "FROM base/small\nRUN (sleep 1000; echo late > /late) & echo $! > /pid\nRUN ls /late\n"
    with pytest.raises(BuildError, match="step 2/2"):
        workshop.build(text)


def test_names_in_a_layer_outlive_its_stubs(workshop: Workshop) -> None:
    """A file that stands where the container mounts its own is content."""
    text = "FROM base/small\nCOPY <<E /etc/hosts\nmine\nE\nRUN echo > /x\n"
    assert workshop.build(text).files["etc/hosts"] == b"mine\n"


def test_a_missing_directory_belongs_to_the_user(workshop: Workshop) -> None:
    built = workshop.build("FROM base/small\nUSER user\nWORKDIR /w/d\nRUN echo > f\n")
    owners = {(e.uid, e.gid, e.mode) for p, e in built.entries.items() if p in ("w", "w/d")}
    assert owners == {(1000, 1001, 0o755)}


def test_a_directory_that_only_a_layer_below_names_is_made(
    workshop: Workshop, base_folder: Path
) -> None:
    run = RunConfig(workdir="/srv/app", user="user")
    workshop.layers.layers["base/named"] = FolderLayer(base_folder, run)
    built = workshop.build("FROM base/named\nRUN echo > f\n")
    assert built.entries["srv/app"].uid == built.entries["srv/app/f"].uid == 1000


def test_the_root_keeps_its_attributes(workshop: Workshop, base_folder: Path) -> None:
    """Overlayfs keeps those of its own name under another one, which is content to us."""
    upper = workshop.folder / "upper"
    upper.mkdir(mode=0o751)
    upper.chmod(0o751)
    os.setxattr(upper, "trusted.overlay.overlay.a", b"content")
    os.setxattr(upper, "user.b", b"too")
    workshop.layers.layers["workspace/low"] = FolderLayer(upper, below="base/small")
    built = workshop.build("FROM workspace/low\nRUN echo > /f\n", head="LAYER workspace w\n")
    root = built.entries[""]
    assert (root.mode, root.xattrs) == (
        0o751,
        ((b"trusted.overlay.a", b"content"), (b"user.b", b"too")),
    )
