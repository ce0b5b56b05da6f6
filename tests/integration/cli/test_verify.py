"""`verify` by its exit status: 0 for what is sound, 5 with the damaged part named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.reference import Reference
from tests.support.cli import BASE, Cli, Ran
from tests.support.damage import blob_path, flip_bit

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse]


def damaged(ran: Ran) -> list[str]:
    assert ran.status == CorruptError.exit_code, ran
    assert ran.error.startswith(f"{BASE} is damaged: ")
    return [line for line in ran.text.splitlines() if "DAMAGED" in line or "repaired" in line]


def layer_of(cli: Cli) -> MountLayer:
    (layer,) = cli.bench.stack(Reference.parse(BASE)).layers
    return layer


def test_what_is_sound(cli: Cli) -> None:
    lines = cli("verify", BASE).splitlines()
    assert lines[0].split() == ["PART", "BYTES", "SECONDS", "RESULT"]
    assert all(line.endswith(" ok") for line in lines[1:])
    assert any("mounted tree" in line for line in lines)
    report = cli.json("verify", BASE)
    assert not any("problems" in check for check in report["checks"])
    assert cli.leftovers() == []


@pytest.mark.parametrize(
    ("part", "blob"),
    [
        ("pack", lambda layer: layer.manifest.packs[0]),
        ("metadata", lambda layer: layer.manifest.metadata),
        ("chunk table", lambda layer: layer.manifest.table),
    ],
)
@pytest.mark.parametrize("options", [("--stored-only",), ()])
def test_a_flipped_bit_in_a_blob(
    cli: Cli, part: str, blob: Callable[..., object], options: tuple[str, ...]
) -> None:
    path = blob_path(cli.bench.local, blob(layer_of(cli)))  # type: ignore[arg-type]
    path.chmod(0o644)
    flip_bit(path, 3000 if part == "pack" else 40)
    ran = cli.run("verify", BASE, *options)
    assert any(part in line and "DAMAGED" in line for line in damaged(ran)), ran
    assert ran.hint
    assert cli.leftovers() == []


def test_a_flipped_bit_in_the_local_metadata_is_mended(cli: Cli) -> None:
    cli("tree", BASE)
    (image,) = (cli.home / "metadata").iterdir()
    whole = image.read_bytes()
    image.chmod(0o644)
    flip_bit(image, 2000)
    ran = cli.run("verify", BASE)
    assert any("repaired" in line for line in damaged(ran)), ran
    assert image.read_bytes() == whole
    assert cli.run("verify", BASE).status == 0


def test_a_flipped_bit_in_a_cached_chunk_is_mended(cli: Cli) -> None:
    cli("verify", BASE)  # fills the cache
    cached = sorted(path for path in (cli.home / "cache/chunks").rglob("*") if path.is_file())
    assert cached
    flip_bit(cached[0], 100)
    ran = cli.run("verify", BASE)
    (line,) = damaged(ran)
    assert "cached chunks" in line
    assert "repaired" in line
    assert cli.run("verify", BASE).status == 0


def test_no_wrong_byte_is_read(cli: Cli, tmp_path: Path) -> None:
    """A damaged pack gives errors, to `cat` as to the mount."""
    pack = blob_path(cli.bench.local, layer_of(cli).manifest.packs[0])
    pack.chmod(0o644)
    for offset in range(1000, pack.stat().st_size, 50_000):
        flip_bit(pack, offset)
    target = cli.folder / "mnt"
    cli("mount", BASE, target)
    with pytest.raises(OSError, match="Input/output"):
        (target / "bin/sh").read_bytes()
    cli("umount", target)
    ran = cli.run("cat", BASE, "/bin/sh")
    assert ran.status == CorruptError.exit_code
    assert "corrupt" in ran.error
