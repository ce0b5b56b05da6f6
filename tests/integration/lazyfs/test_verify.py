"""Verification proves a sound environment, and names whatever is damaged in another."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from dsec_layers.builder.pack import pack_layer
from dsec_layers.chunks.table import Chunk
from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.devices import DaemonDevices
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.paths import Paths
from dsec_layers.lazyfs.report import Check, Report
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.lazyfs.verify import verify_mounted, verify_stored
from dsec_layers.lazyfs.verify_stored import load_table
from dsec_layers.model.reference import Kind
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.sources.directory import walk
from tests.support.damage import blob_path, flip_bit
from tests.support.layers import LocalDevices, file_tree, pack_tree, store_layer
from tests.support.trees import Contents, trees

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse]


@pytest.fixture
def client(disk: Path) -> Iterator[DaemonClient]:
    client = DaemonClient(disk / "home")
    yield client
    client.stop(force=True)


@dataclass
class Bench:
    """Verifies an environment whose data comes from the daemon."""

    home: Path
    store: DirectoryStore
    manager: RootfsManager
    client: DaemonClient
    layers: list[MountLayer]

    def verify(self) -> Report:
        return verify_mounted(self.layers, "env/demo", home=self.home, manager=self.manager)

    def forget_reads(self) -> None:
        """Let the next read come from the store."""
        self.client.evict()

    def chunks(self) -> list[Chunk]:
        return list(load_table(self.layers[0]))

    def cached(self, chunk: Chunk) -> Path:
        name = chunk.digest.hex()
        return Paths(self.home).chunks / name[:2] / name[2:]


@pytest.fixture
def bench(disk: Path, store: DirectoryStore, client: DaemonClient) -> Bench:
    """A base of real files, packed as builds do it, and a workspace that hides some of them."""
    source = disk / "source"
    for number in range(40):
        folder = source / f"d{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_bytes(os.urandom(9_000))
    (source / "large").write_bytes(os.urandom(3 << 20))
    os.link(source / "large", source / "linked")
    base = pack_layer(walk(source), kind=Kind.BASE, name="b", store=store, work_dir=disk)
    tree, contents = file_tree({b"d0/f0": b"hides", b"new": b"n" * 5000})
    gone = Entry(path=b"d0/f4", kind=EntryKind.WHITEOUT)
    tree = Tree.of([*tree, gone])
    layers = [
        MountLayer(base.manifest.descriptor(), base.manifest, base.config, store, (store.url,)),
        pack_tree(tree, contents, store, disk, kind=Kind.WORKSPACE, name="w"),
    ]
    manager = RootfsManager(disk / "home", DaemonDevices(client))
    return Bench(disk / "home", store, manager, client, layers)


def failed(report: Report) -> dict[str, Check]:
    return {
        check.part.split(": ", 1)[-1].split(" sha256")[0]: check
        for check in report.checks
        if not check.ok
    }


def test_a_sound_environment_is_proved(bench: Bench) -> None:
    report = bench.verify()
    report.raise_for_problems()
    parts = [check.part.split(": ", 1)[-1].split(" sha256")[0] for check in report.checks]
    each = [
        "manifest",
        "config",
        "metadata",
        "chunk table",
        "pack",
        "cached chunks",
        "mounted tree",
    ]
    assert parts == [*each, *each, "composed tree"]
    assert all(check.size_bytes for check in report.checks if "cached" not in check.part)
    assert bench.manager.list() == ()
    again = bench.verify()
    again.raise_for_problems()
    cached = [check.size_bytes for check in again.checks if "cached chunks" in check.part]
    assert cached[0] == bench.layers[0].config.sizes.device_bytes
    msgspec.json.encode(again)


@pytest.mark.parametrize("part", ["manifest", "config", "metadata", "table"])
@pytest.mark.parametrize("position", [10, -1])
def test_a_damaged_document_is_named(bench: Bench, part: str, position: int) -> None:
    layer = bench.layers[0]
    blob = layer.descriptor if part == "manifest" else getattr(layer.manifest, part)
    flip_bit(blob_path(bench.store, blob), position)
    report = bench.verify()
    named = "chunk table" if part == "table" else part
    assert named in failed(report)
    with pytest.raises(CorruptError, match=blob.digest):
        report.raise_for_problems()
    with pytest.raises(CorruptError, match=blob.digest):
        verify_stored(bench.layers, "env/demo").raise_for_problems()


def read_everything(folder: Path) -> dict[str, bytes | None]:
    """Every file's bytes by path, None for one that gives an error."""
    contents: dict[str, bytes | None] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        contents[str(path.relative_to(folder))] = None
        with contextlib.suppress(OSError):
            contents[str(path.relative_to(folder))] = path.read_bytes()
    return contents


def test_a_damaged_pack_is_named_and_no_wrong_byte_is_read(bench: Bench, disk: Path) -> None:
    right = read_everything(disk / "source")
    victim = bench.chunks()[0]
    pack = bench.layers[0].manifest.packs[0]
    flip_bit(blob_path(bench.store, pack), victim.pack_offset + victim.stored_length // 2)
    report = bench.verify()
    problems = failed(report)
    assert set(problems) == {"pack", "mounted tree", "composed tree"}
    assert victim.digest.hex() in " ".join(problems["pack"].problems)
    assert any("does not match its digest" in text for text in problems["pack"].problems)
    assert "Input/output error" in " ".join(problems["mounted tree"].problems)
    assert not bench.cached(victim).exists()
    with bench.manager.layer_dirs(bench.layers[:1]) as (folder,):
        found = read_everything(folder)
    assert {path for path, data in found.items() if data is None} != set()
    assert all(data in (None, right[path]) for path, data in found.items())


def test_a_damaged_pack_index_is_named(bench: Bench) -> None:
    pack = bench.layers[0].manifest.packs[0]
    flip_bit(blob_path(bench.store, pack), pack.size - 100)
    report = bench.verify()
    assert set(failed(report)) == {"pack"}
    assert "index" in failed(report)["pack"].problems[0]


def test_a_missing_pack_is_named(bench: Bench) -> None:
    pack = bench.layers[0].manifest.packs[0]
    bench.store.delete(pack)
    report = bench.verify()
    assert "pack" in failed(report)
    with pytest.raises(CorruptError, match=pack.digest):
        report.raise_for_problems()


@pytest.mark.parametrize("position", [0, 5000, -1])
def test_a_damaged_cache_entry_is_named_and_fetched_again(bench: Bench, position: int) -> None:
    bench.verify().raise_for_problems()
    victim = bench.chunks()[-1]
    flip_bit(bench.cached(victim), position)
    report = bench.verify()
    problems = failed(report)
    assert set(problems) == {"cached chunks"}
    assert problems["cached chunks"].repaired
    with pytest.raises(CorruptError, match=str(bench.cached(victim))):
        report.raise_for_problems()
    assert bench.cached(victim).exists()
    bench.verify().raise_for_problems()


def test_a_cache_entry_that_cannot_be_fetched_again_is_gone_and_said(bench: Bench) -> None:
    bench.verify().raise_for_problems()
    victim = bench.chunks()[0]
    flip_bit(bench.cached(victim), 0)
    bench.store.delete(bench.layers[0].manifest.packs[0])
    problems = failed(bench.verify())
    assert not problems["cached chunks"].repaired
    assert "cannot be fetched again" in " ".join(problems["cached chunks"].problems)
    assert not bench.cached(victim).exists()


def test_a_damaged_cache_entry_gives_no_wrong_byte(bench: Bench, disk: Path) -> None:
    right = read_everything(disk / "source")
    bench.verify().raise_for_problems()
    for chunk in bench.chunks():
        flip_bit(bench.cached(chunk), chunk.length // 2)
    bench.client.restart()  # its memory may hold some
    with bench.manager.layer_dirs(bench.layers[:1]) as (folder,):
        assert read_everything(folder) == right
    bench.verify().raise_for_problems()


def test_a_damaged_image_on_this_node_is_named_and_fetched_again(bench: Bench) -> None:
    bench.verify().raise_for_problems()
    image = bench.home / "metadata" / f"{bench.layers[0].digest.hex}.erofs"
    flip_bit(image, 5000)
    report = bench.verify()
    problems = failed(report)
    assert list(problems) == [f"metadata image {image}"]
    assert problems[f"metadata image {image}"].repaired
    bench.verify().raise_for_problems()


def test_every_failure_is_reported(bench: Bench) -> None:
    bench.verify().raise_for_problems()
    flip_bit(bench.cached(bench.chunks()[0]), 0)
    flip_bit(blob_path(bench.store, bench.layers[0].manifest.config), 0)
    flip_bit(blob_path(bench.store, bench.layers[1].manifest.packs[0]), -1)
    mounts = {"mounted tree", "composed tree"}  # a daemon does not serve without the config
    bench.client.stop(force=True)  # the one that runs may still have it
    for path in (bench.home / "run/known").iterdir():
        path.unlink()
    for path in (bench.home / "run/attached").iterdir():
        path.unlink()
    assert set(failed(bench.verify())) == {"config", "cached chunks", "pack", *mounts}


# From here on with devices in plain files, which a test can change behind everybody's back.


@pytest.fixture
def verify(disk: Path, manager: RootfsManager) -> Callable[..., Report]:
    def verify(*layers: MountLayer) -> Report:
        return verify_mounted(layers, "layers", home=disk / "home", manager=manager)

    return verify


def test_a_wrong_byte_of_a_mount_is_found_and_placed(
    disk: Path,
    store: DirectoryStore,
    devices: LocalDevices,
    manager: RootfsManager,
    verify: Callable[..., Report],
) -> None:
    files = {b"a": b"a" * 10_000, b"b": b"b" * 10_000}
    layer = pack_tree(*file_tree(files), store, disk)
    with manager.layer_dirs([layer]):
        flip_bit(devices.attach_one(layer).path, 3 * 4096 + 4096 + 5)
        problems = failed(verify(layer))
    assert problems["mounted tree"].problems == ("b'b' differs from its chunks at byte 4101",)
    assert set(problems) == {"mounted tree"}


def test_a_tree_that_its_config_does_not_name_is_found(
    disk: Path, store: DirectoryStore, verify: Callable[..., Report]
) -> None:
    layer = pack_tree(*file_tree({b"a": b"1"}), store, disk)
    other = pack_tree(*file_tree({b"a": b"2"}), store, disk)
    config = msgspec.structs.replace(layer.config, tree_digest=other.config.tree_digest)
    lying = store_layer(store, config, layer.manifest)
    problems = failed(verify(lying))
    assert "the tree digest is" in problems["mounted tree"].problems[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dsec-test-", dir="/var/tmp") as name:
        yield Path(name).resolve()


@settings(max_examples=15)
@given(base=trees(changes=False, max_inodes=8), change=trees(max_inodes=8))
def test_any_trees_are_proved(
    folder: Path, base: tuple[Tree, Contents], change: tuple[Tree, Contents]
) -> None:
    store = DirectoryStore.open(folder / "store", create=True)
    manager = RootfsManager(folder / "home", LocalDevices(folder / "devices"))
    layers = [
        pack_tree(*base, store, folder),
        pack_tree(*change, store, folder, kind=Kind.WORKSPACE),
    ]
    report = verify_mounted(layers, "trees", home=folder / "home", manager=manager)
    report.raise_for_problems()
