"""Results of build steps by way of a registry."""

import json
import shutil

import pytest

from tests.support.cli import BASE, Cli, bare, base_store, cli
from tests.support.oci_registry import Registry

__all__ = ["bare", "base_store", "cli"]

pytestmark = [
    *(pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci),
    pytest.mark.peers("docker-registry"),
]


def test_another_machine_takes_the_steps_from_a_registry(
    cli: Cli,
    registry: Registry,
    prefix: str,
) -> None:
    url = registry.url(prefix)
    folder = cli.folder / "context"
    folder.mkdir()
    steps = "RUN cat /proc/sys/kernel/random/uuid > /id\nRUN cat /id /id > /two\n"
    (folder / "Layerfile").write_text(f"LAYER base x\nFROM {BASE}\n{steps}")
    first = cli.json("build", folder, "-t", "base/x:1", "--cache-to", url)["digest"]
    shutil.rmtree(cli.home / "builder")
    ran = cli.run("--progress", "json", "build", folder, "-t", "base/x:2", "--cache-from", url)
    assert ran.status == 0, ran
    events = [json.loads(line) for line in ran.stderr.splitlines()]
    assert not [event for event in events if event["event"] in ("done", "note")]
    assert {event["store"] for event in events if event["event"] == "cached"} == {url}
    assert events[-1]["digest"] == first
