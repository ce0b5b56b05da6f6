"""A signal ends an import at once, also while threads wait for the registry."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.integration.registry.oci.conftest import Put
from tests.support.cli import Cli, bare
from tests.support.gateway import Asked, Fault, Gateway
from tests.support.oci_registry import layers, trust
from tests.support.ocis import Image

__all__ = ["bare"]


@pytest.mark.peers("docker-registry", "skopeo")
@pytest.mark.root
@pytest.mark.parametrize("how", ["asked to wait", "silence in the middle"])
def test_an_import_whose_layers_do_not_come(bare: Cli, front: Gateway, put: Put, how: str) -> None:
    image = Image()
    image.manifests.append(image.image(layers()))
    name = put(image)
    trust(bare.home, front.address)
    asked, over = threading.Semaphore(0), threading.Event()
    faults = {
        "asked to wait": Fault(503, {"Retry-After": "59"}),
        "silence in the middle": Fault(cut=10, silence=over),
    }

    def plan(request: Asked) -> Fault | None:
        if len(front.methods("GET", "blobs/sha256")) < 2:  # the config
            return None
        asked.release()
        return faults[how]

    front.plan = plan
    try:
        with bare.start("import", f"docker://{front.address}/{name}", "base/x:1") as child:
            assert asked.acquire(timeout=60)
            child.send_signal(signal.SIGINT)
            assert child.wait(30) == 130
    finally:
        over.set()
    assert bare.leftovers() == []
    assert bare.tags() == []
