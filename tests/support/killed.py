"""A process that mounts and unmounts, and kills itself at a chosen step of it.

    python -m tests.support.killed HOME DEVICES STORE STEP ACTION DIGEST-SIZE...

ACTION is bound, mount, unmount or sweep. With `-` for STEP it lives: it says "ready" and waits for
the end of its input.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.layers import load_layer
from tests.support.layers import LocalDevices


def main() -> None:
    home, folder, root, fatal, action, *digests = sys.argv[1:]

    def trace(step: str) -> None:
        if step == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    manager = RootfsManager(Path(home), LocalDevices(Path(folder)), trace=trace)
    store = DirectoryStore.open(Path(root))
    layers = [_layer(store, name) for name in digests]
    target = Path(home).parent / "mnt"
    if action == "sweep":
        manager.reconcile()
    elif action == "bound":
        with manager.mounted(layers, target) as rootfs:
            (rootfs.target / "written").touch()
            _wait(fatal)
    else:
        manager.mount(layers, target)
        (target / "written").touch()
        if action == "unmount":
            manager.unmount(target)


def _layer(store: DirectoryStore, name: str) -> MountLayer:
    digest, _, size = name.rpartition("-")
    stored = load_layer(store, Descriptor(OCI_MANIFEST, digest, int(size)))
    return MountLayer(stored.descriptor, stored.manifest, stored.config, store)


def _wait(fatal: str) -> None:
    if fatal == "-":
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
