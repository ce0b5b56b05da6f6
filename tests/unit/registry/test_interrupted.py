"""A process killed in the middle of its work leaves nothing visible and nothing for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry import lease
from dsec_layers.registry.directory import DirectoryStore
from tests.support.stores import put_bytes

DATA = b"data" * 1000
BLOB = Descriptor.of(DATA, PACK_TYPE)
NAME = Reference.parse("base/debian:12")

PUT = """
import sys
from pathlib import Path
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.registry.directory import DirectoryStore

def pieces():
    yield b"data"
    print("in the middle", flush=True)
    sys.stdin.read()

DirectoryStore.open(Path(sys.argv[1])).put(Descriptor.of(b"data" * 1000, PACK_TYPE), pieces())
"""

TAG = """
import sys
from pathlib import Path
from dsec_layers.registry import lease

root = Path(sys.argv[1])
with lease.hold(root / "refs/base/debian/@12.lock", root):
    print("holding", flush=True)
    sys.stdin.read()
"""


def killed_after_its_first_line(script: str, store: DirectoryStore) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", script, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline()
        finally:
            process.kill()


def test_killed_in_a_put(tmp_path: Path) -> None:
    store = DirectoryStore.open(tmp_path / "store", create=True)
    killed_after_its_first_line(PUT, store)
    assert not store.has(BLOB)
    assert list(store.blobs()) == []
    assert store.put(BLOB, DATA)
    assert store.remove_stale() == 0, "it may still be written"
    assert store.remove_stale(older_than_s=-1) == 1
    assert list(store.blobs()) == [BLOB]
    assert store.read(BLOB) == DATA


def test_killed_while_changing_a_tag(tmp_path: Path) -> None:
    made = DirectoryStore.open(tmp_path / "store", create=True)
    target = put_bytes(made, b"manifest")
    killed_after_its_first_line(TAG, made)
    store = DirectoryStore(made.root, timing=lease.Timing(lease_s=0.2, settle_s=0.01))
    store.tag(NAME, target, expected=None)
    assert store.resolve(NAME) == target
    assert [path.name for path in (store.root / "refs/base/debian").iterdir()] == ["@12.json"]
