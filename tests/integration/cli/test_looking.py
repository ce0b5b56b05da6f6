"""`ls`, `inspect`, `tree`, `cat`, `rm`, `stats`: what they print, for people and for programs."""

import io
import json
import os
import subprocess
import sys
import tarfile

import pytest

from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.manifest import PACK_TYPE
from dsec_layers.model.reference import Reference
from tests.support.cli import BASE, PROGRAM, ROOT, Cli
from tests.support.damage import blob_path

ODD = b"odd \xff\n\x1b[31m'\"\\name"


def odd_archive() -> bytes:
    """Names that are no text, symlinks in every form."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", errors="surrogateescape") as tar:
        for name, data in ((ODD, b"odd"), (b"usr/bin/tool", b"tool"), (b"etc/conf", b"conf")):
            info = tarfile.TarInfo(os.fsdecode(name))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for link, target in (
            ("bin", "usr/bin"),
            ("up", "usr/bin/../../etc"),
            ("through", "bin/../sbin"),
            ("abs", "/bin/tool"),
            ("high", "../../../etc/conf"),
            ("loop", "loop"),
            ("dangling", "nowhere"),
        ):
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
        info = tarfile.TarInfo("usr/sbin")
        info.type, info.mode = tarfile.DIRTYPE, 0o750
        tar.addfile(info)
    return out.getvalue()


@pytest.fixture
def odd(bare: Cli) -> Cli:
    bare("import", "-", "base/odd:1", stdin=odd_archive())
    return bare


def test_names_that_are_no_text(odd: Cli) -> None:
    lines = odd("tree", "base/odd:1").splitlines()
    assert [line for line in lines if "odd" in line] == [
        "-rw-r--r--     0     0            3 /odd \\xff\\n\\x1b[31m'\"\\name"
    ]
    assert odd("cat", "base/odd:1", os.fsdecode(b"/" + ODD)) == "odd"
    paths = [entry["path"] for entry in odd.json("tree", "base/odd:1")]
    assert "/odd \\xff\\n\\x1b[31m'\"\\name" in paths
    missing = odd.fails(NotFoundError, "cat", "base/odd:1", os.fsdecode(b"/no \xff\n\x1b"))
    assert missing.error == r"no such path: /no \xff\n\x1b"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/bin/tool", "tool"),
        ("bin/../../etc/conf", "conf"),
        ("/up/conf", "conf"),
        ("/abs", "tool"),
        ("/high", "conf"),
        ("//usr/./bin//tool", "tool"),
        ("/../../etc/conf", "conf"),
    ],
)
def test_cat_follows_links_inside_the_tree(odd: Cli, path: str, text: str) -> None:
    assert odd("cat", "base/odd:1", path) == text


def test_cat_of_what_is_no_file(odd: Cli) -> None:
    assert "directory" in odd.fails(InvalidInputError, "cat", "base/odd:1", "/bin").error
    assert "too many" in odd.fails(NotFoundError, "cat", "base/odd:1", "/loop").error
    assert "no such" in odd.fails(NotFoundError, "cat", "base/odd:1", "/dangling").error
    assert "not a dir" in odd.fails(NotFoundError, "cat", "base/odd:1", "/etc/conf/x").error


def test_trees_below_a_path(odd: Cli) -> None:
    def paths(*words: str) -> list[str]:
        return [entry["path"] for entry in odd.json("tree", "base/odd:1", *words)]

    assert paths("/bin") == ["/usr/bin", "/usr/bin/tool"]
    assert paths("through") == ["/usr/sbin"]
    assert paths("/usr", "--depth", "1") == ["/usr", "/usr/bin", "/usr/sbin"]
    assert paths("/", "-L", "0") == ["/"]
    assert paths("/etc/conf") == ["/etc/conf"]
    listed = odd("tree", "base/odd:1", "/", "-L", "1").splitlines()
    assert "lrwxrwxrwx     0     0            0 /bin -> usr/bin" in [
        line.replace("lrw-r--r--", "lrwxrwxrwx") for line in listed
    ]


def test_every_document_is_json_and_nothing_else(cli: Cli) -> None:
    """In both places where --json may stand, also for what is empty."""
    url = f"dir://{cli.folder}/other"
    cli("compose", BASE, "-t", "env/e")
    for words in (
        ("ls",),
        ("ls", "toolkit"),
        ("inspect", "env/e"),
        ("tree", BASE),
        ("push", "env/e", url),
        ("pull", "env/e", url),
        ("compose", BASE, "-t", "env/e"),
        ("verify", "--stored-only", "env/e"),
        ("untag", "env/e"),
    ):
        first, *rest = words
        for given in (("--json", *words), (first, *rest, "--json")):
            if words[0] == "untag":
                cli("compose", BASE, "-t", "env/e")
            ran = cli.run("--progress", "plain", *given)
            assert ran.status == 0, ran
            assert isinstance(json.loads(ran.stdout), list | dict)


@pytest.mark.root
@pytest.mark.erofs
@pytest.mark.fuse
@pytest.mark.oci
def test_documents_of_what_needs_root(cli: Cli) -> None:
    context = cli.folder / "context"
    context.mkdir()
    (context / "Layerfile").write_text(
        f"LAYER toolkit t\nFROM {BASE}\nRUN echo noise; echo x > /x\n"
    )
    built = cli.run("--progress", "json", "build", context, "--json")
    assert built.status == 0, built
    assert json.loads(built.stdout)["reference"] == "toolkit/t:latest"
    events = [json.loads(line) for line in built.stderr.splitlines()]
    assert [event["event"] for event in events][:2] == ["step", "output"]
    target = cli.folder / "mnt"
    for words in (
        ("mount", BASE, str(target)),
        ("mount",),
        ("stats",),
        ("daemon", "status"),
        ("run", "toolkit/t", "--", "cat", "/x"),
        ("verify", "toolkit/t"),
        ("daemon", "restart"),
        ("umount", str(target)),
        ("daemon", "stop"),
    ):
        assert isinstance(cli.json(*words), list | dict)


def test_cat_has_no_json_form(cli: Cli) -> None:
    ran = cli.run("--json", "cat", BASE, "/etc/group")
    assert (ran.status, ran.stdout) == (2, b"")


def test_ls(cli: Cli) -> None:
    cli("compose", BASE, "-t", "env/e")
    assert [row["reference"] for row in cli.json("ls")] == [BASE, "env/e:latest"]
    assert [row["reference"] for row in cli.json("ls", "env")] == ["env/e:latest"]
    header, first, _ = cli("ls").splitlines()
    assert header.split() == ["REFERENCE", "DIGEST", "ENTRIES", "SIZE", "STORED", "DATA"]
    assert first.split()[-1] == "here"


def test_one_damaged_layer_hides_no_other(cli: Cli) -> None:
    cli.add("toolkit/t:1", {"t": "t"})
    store = cli.bench.local
    layer = store.resolve(Reference.parse("toolkit/t:1"))
    blob_path(store, layer).unlink()
    listed = {row["reference"]: row for row in cli.json("ls")}
    assert listed[BASE]["complete"]
    assert listed["toolkit/t:1"]["problem"]
    assert "damaged: " in cli("ls")
    cli.fails(NotFoundError, "untag", "toolkit/other:1", BASE)
    assert BASE in cli("ls")


def test_inspect(cli: Cli) -> None:
    cli.add("toolkit/t:1", {"t": "t"})
    cli("compose", BASE, "toolkit/t:1", "-t", "env/e")
    found = json.loads(cli("inspect", "env/e"))
    assert [config["kind"] for config in found["configs"]] == ["base", "toolkit"]
    assert found["entries"] == sum(config["sizes"]["entries"] for config in found["configs"])
    assert cli.json("inspect", BASE)["blobs"]


def test_untag_and_gc(cli: Cli) -> None:
    cli.add("toolkit/t:1", {"t": "t" * 10_000})
    cli("compose", BASE, "toolkit/t:1", "-t", "env/e")
    cli("untag", "toolkit/t:1")
    assert "/t" in cli("tree", "env/e"), "the environment still has it"
    store = cli.bench.local
    before = {blob.digest for blob in store.blobs()}
    assert cli.json("untag", "env/e") == {"removed": ["env/e:latest"]}
    spared = cli.json("gc")
    assert spared["bytes"] == 0, "nothing is old enough"
    assert {blob.digest for blob in store.blobs()} == before
    would = cli.json("gc", "--grace", "0", "--dry-run")
    assert would["blobs"] == spared["young_blobs"] > 0
    assert {blob.digest for blob in store.blobs()} == before
    assert cli.json("gc", "--grace", "0", "--keep-untagged", "7d")["blobs"] == 0
    assert "6 blobs removed" in cli("gc", "--grace", "0")
    assert len([blob for blob in store.blobs() if blob.media_type == PACK_TYPE]) == 1
    assert cli("tree", BASE)
    assert "is no span" in cli.fails(InvalidInputError, "gc", "--grace", "soon").error


@pytest.mark.root
@pytest.mark.erofs
@pytest.mark.fuse
def test_what_is_mounted_is_not_collected(cli: Cli) -> None:
    target = cli.folder / "mnt"
    cli("mount", BASE, target)
    cli("untag", BASE)
    assert cli.json("gc", "--grace", "0")["blobs"] == 0
    cli("daemon", "restart")
    assert (target / "bin/sh").read_bytes()
    cli("umount", target)


def test_output_that_nobody_reads(cli: Cli) -> None:
    """As `| head -1` does: the reader goes, and that is no error."""
    for words in (("tree", BASE), ("cat", BASE, "/bin/sh"), ("ls",), ("inspect", BASE)):
        read, write = os.pipe()
        os.close(read)
        ran = subprocess.run(
            [*PROGRAM, "--home", cli.home, *words],
            stdout=write,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]},  # output is buffered, whatever the tester likes
            check=False,
        )
        os.close(write)
        assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("mount", "ba"), "base/small:1"),
        (("compose", "--tag", ""), None),
        (("ru",), "run"),
        (("daemon", "st"), "stop"),
        (("build", ".", "--tag", "env"), None),
    ],
)
def test_completion(cli: Cli, words: tuple[str, ...], expected: str | None) -> None:
    line = ["dsec-layers", "--home", str(cli.home), *words]
    ran = subprocess.run(
        [sys.executable, "-c", "from dsec_layers.cli.main import main; main()"],
        env={
            **os.environ,
            "_DSEC_LAYERS_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(len(line) - 1),
        },
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    found = [entry.split(",")[1] for entry in ran.stdout.split()]
    assert (expected in found) if expected else (found == [])


def test_completion_makes_nothing(bare: Cli) -> None:
    bare.environ |= {
        "_DSEC_LAYERS_COMPLETE": "bash_complete",
        "COMP_WORDS": f"dsec-layers --home {bare.home} mount ",
        "COMP_CWORD": "4",
    }
    assert bare.run().stdout.strip() == b""
    assert not bare.home.exists()
