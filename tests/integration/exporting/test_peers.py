"""Images of ours in the hands of others: skopeo copies them, umoci unpacks them."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings

from dsec_layers.api import composing, looking
from dsec_layers.api.exporting import ExportOptions, export
from dsec_layers.api.importing import import_
from dsec_layers.api.publishing import publish
from dsec_layers.api.workbench import Workbench
from dsec_layers.exporting.compression import Compression
from dsec_layers.exporting.destination import Destination
from dsec_layers.model import merge
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.exports import Drawn, exportable_trees, source_of
from tests.support.trees import content_digest

BASE, TOOL = Reference.parse("base/b:1"), Reference.parse("toolkit/t:1")
ENV, AGAIN = Reference.parse("env/e:v1"), Reference.parse("base/again:1")
RUN = RunConfig(env={"A": "b"}, workdir="/srv", cmd=("x",), labels={"l": "m"})


def run(*words: str | Path) -> str:
    ran = subprocess.run([*map(str, words)], capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr[:3000]
    return ran.stdout.decode()


def skopeo(*words: str) -> str:
    return run("skopeo", "--insecure-policy", *words)


def digest_of(bench: Workbench, reference: Reference) -> str:
    return looking.inspect(bench, reference).configs[0].tree_digest


def stack(folder: Path, base: Drawn, top: Drawn) -> tuple[Workbench, str]:
    """An environment of two layers, and the digest of the tree that it shows."""
    bench = Workbench(folder / "home")
    for part, drawn in ((BASE, base), (TOOL, top)):
        source = source_of(drawn, folder / part.name)
        publish(bench, source, part, run=RUN, provenance=Provenance(), workers=1)
    composing.compose(bench, [BASE, TOOL], ENV)
    return bench, str(merge.apply(base[0], top[0]).digest())


def file(path: bytes, data: bytes, **fields: Any) -> Entry:
    return Entry(
        path=path,
        kind=EntryKind.FILE,
        size=len(data),
        digest=content_digest(data),
        **{"mode": 0o644, **fields},
    )


def folder(path: bytes, **fields: Any) -> Entry:
    return Entry(path=path, kind=EntryKind.DIRECTORY, **{"mode": 0o755, **fields})


def drawn(entries: Sequence[Entry], contents: dict[bytes, bytes]) -> Drawn:
    return Tree.of(entries), contents


HOLES = bytes(3 << 20) + b"data" + bytes(2 << 20)
LONG = b"/".join([b"d" * 255, b"\xff" * 200])
LOWER = drawn(
    [
        folder(b"", mode=0o711, mtime_ns=1_000_000_000_123_456_789),
        folder(b"gone"),
        file(b"gone/a", b"a"),
        folder(b"kept"),
        file(b"kept/a", b"a", mtime_ns=5_000_000_001),
        file(b"kept/b", b"b"),
        folder(b"new"),
        file(b"new/a", b"a"),
        file(b"turned", b"a"),
        file(b"one", b"x", link_group=1, uid=3_000_000_000, gid=2**21),
        file(b"two", b"x", link_group=1, uid=3_000_000_000, gid=2**21),
        file(b"holes", HOLES),
        file(b"set", b"s", mode=0o6755, xattrs=((b"user.x", b"\0\n"),)),
        folder(b"d" * 255),
        folder(LONG, mtime_ns=-1_500_000_000),
        file(LONG + b"/f", b"f"),
        Entry(path=b"dev", kind=EntryKind.CHAR, mode=0o600, major=1, minor=300),
        Entry(path=b"block", kind=EntryKind.BLOCK, mode=0o600, major=259, minor=1),
        Entry(path=b"fifo", kind=EntryKind.FIFO, mode=0o600),
        Entry(path=b"link", kind=EntryKind.SYMLINK, mode=0o777, target=b"t" * 200, mtime_ns=7),
    ],
    {
        **dict.fromkeys([b"gone/a", b"kept/a", b"new/a", b"turned"], b"a"),
        b"kept/b": b"b",
        b"one": b"x",
        b"two": b"x",
        b"holes": HOLES,
        b"set": b"s",
        LONG + b"/f": b"f",
    },
)
UPPER = drawn(
    [
        folder(b"", mode=0o755, mtime_ns=9),
        Entry(path=b"gone", kind=EntryKind.WHITEOUT),
        folder(b"kept", mode=0o700),
        Entry(path=b"kept/b", kind=EntryKind.WHITEOUT),
        folder(b"new", opaque=True),
        file(b"new/b", b"b"),
        folder(b"turned"),
        file(b"turned/in", b"in"),
        file(b"two", b"other"),
    ],
    {b"new/b": b"b", b"turned/in": b"in", b"two": b"other"},
)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Workbench, str]:
    return stack(tmp_path, LOWER, UPPER)


@pytest.mark.peers("skopeo")
@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD])
def test_skopeo_copies(
    made: tuple[Workbench, str], tmp_path: Path, compression: Compression
) -> None:
    bench, expected = made
    options = ExportOptions(compression=compression)
    for name in (f"oci:{tmp_path}/a:v1", f"oci-archive:{tmp_path}/a.tar:v1"):
        row = export(bench, ENV, Destination.parse(name), options)
        seen = json.loads(skopeo("inspect", name))
        assert seen["Digest"] == row.digest
        assert seen["Env"] == ["A=b"]
        assert seen["Labels"] == {"l": "m"}
        assert len(seen["Layers"]) == 2
    # It writes no docker-archive with zstd layers.
    is_docker = compression is Compression.GZIP
    between = f"docker-archive:{tmp_path}/d:x/y:z" if is_docker else f"oci:{tmp_path}/d:v1"
    skopeo("copy", f"oci:{tmp_path}/a:v1", between)
    skopeo("copy", between, f"oci-archive:{tmp_path}/e:v1")
    for copied in ("d", "e"):
        import_(bench, str(tmp_path / copied), AGAIN)
        assert digest_of(bench, AGAIN) == expected
        assert looking.inspect(bench, AGAIN).run == RUN


@pytest.mark.peers("skopeo")
@pytest.mark.parametrize("compression", Compression)
def test_skopeo_reads_our_docker_archive(
    made: tuple[Workbench, str], tmp_path: Path, compression: Compression
) -> None:
    bench, expected = made
    name = f"docker-archive:{tmp_path}/d.tar:x/y:z"
    row = export(bench, ENV, Destination.parse(name), ExportOptions(compression=compression))
    config = skopeo("inspect", "--raw", "--config", name)
    assert json.loads(config)["rootfs"]["diff_ids"] == [layer.diff_id for layer in row.layers]
    skopeo("copy", name, f"oci:{tmp_path}/a:v1")
    import_(bench, str(tmp_path / "a"), AGAIN)
    assert digest_of(bench, AGAIN) == expected


def unpacked(bench: Workbench, folder: Path) -> str:
    """The digest of what umoci unpacks."""
    export(bench, ENV, Destination.parse(f"oci:{folder}/out:v1"))
    run("umoci", "unpack", "--image", f"{folder}/out:v1", folder / "bundle")
    try:
        import_(bench, str(folder / "bundle/rootfs"), AGAIN)
    finally:
        shutil.rmtree(folder / "bundle")
    return digest_of(bench, AGAIN)


@pytest.mark.root
@pytest.mark.peers("umoci")
def test_umoci_unpacks(made: tuple[Workbench, str], tmp_path: Path) -> None:
    bench, expected = made
    assert unpacked(bench, tmp_path) == expected


def _for_umoci(drawn: Drawn) -> Drawn:
    """Without the xattrs that it does not restore: those of overlayfs, and empty ones."""
    entries = (
        msgspec.structs.replace(entry, xattrs=tuple(filter(_is_restored, entry.xattrs)))
        for entry in drawn[0]
    )
    return Tree.of(entries), drawn[1]


def _is_restored(xattr: tuple[bytes, bytes]) -> bool:
    name, value = xattr
    return bool(value) and not name.startswith(b"trusted.overlay.")


@pytest.mark.root
@pytest.mark.peers("umoci")
@settings(max_examples=20, phases=[Phase.generate])  # a failure is not made smaller: too slow
@given(exportable_trees(changes=False).map(_for_umoci), exportable_trees().map(_for_umoci))
def test_umoci_unpacks_anything(base: Drawn, top: Drawn) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        bench, expected = stack(Path(name), base, top)
        assert unpacked(bench, Path(name)) == expected
