"""What we leave in a registry, in the hands of programs that know nothing of us."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsec_layers.linux import runtime
from dsec_layers.linux.runtime import Runtime
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from tests.support.cli import BASE, Cli, bare, base_store, cli
from tests.support.oci_registry import Registry, trust
from tests.support.packed import pack_files

__all__ = ["bare", "base_store", "cli"]

pytestmark = [pytest.mark.peers("docker-registry", "skopeo"), pytest.mark.root]

TOOL, ENV = "toolkit/t:1", "env/e:1"
ENTRYPOINT = ("/bin/sh", "-c")
CMD = ("echo $GREETING from $PWD; id -u; cat text",)
RUN = RunConfig(
    env={"GREETING": "hello"},
    workdir="/srv",
    user="user",
    entrypoint=ENTRYPOINT,
    cmd=CMD,
    labels={"l": "m"},
)
PRINTED = "hello from /srv\n1000\nof the toolkit\n"


def skopeo(*words: str | Path) -> str:
    ran = subprocess.run(["skopeo", *map(str, words)], capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode()


def seen(name: str, *options: str) -> Any:
    return json.loads(skopeo("inspect", "--tls-verify=false", *options, f"docker://{name}"))


@pytest.fixture
def environment(cli: Cli, registry: Registry) -> Cli:
    """A home that holds an environment with a command, and knows the registry."""
    trust(cli.home, registry.address)
    base = cli.bench.resolve(Reference.parse(BASE))
    files = {"srv/text": b"of the toolkit\n"}
    pack_files(cli.bench, Reference.parse(TOOL), files, base=base, run=RUN)
    cli.compose(ENV, BASE, TOOL)
    return cli


@pytest.fixture(params=["crun", "runc"])
def engine(request: pytest.FixtureRequest) -> Runtime:
    """One that works here, in the way in which it does."""
    for found in runtime.candidates():
        if Path(found.program).name == request.param and runtime.attempt(found) is None:
            return found
    pytest.skip(f"{request.param} does not work here")


@pytest.fixture
def container() -> Iterator[str]:
    """A name for a container, of which no cgroup is left."""
    name = f"dsec-elsewhere-{os.getpid()}"
    yield name
    runtime.remove_cgroups(name)


@pytest.mark.oci
@pytest.mark.overlay
@pytest.mark.erofs
@pytest.mark.fuse
@pytest.mark.peers("umoci")
def test_an_exported_environment_runs_by_the_tools_of_others(
    environment: Cli, registry: Registry, prefix: str, engine: Runtime, container: str
) -> None:
    name, folder = f"{registry.address}/{prefix}/exported:v1", environment.folder
    environment("export", ENV, f"docker://{name}")
    skopeo("copy", "-q", "--src-tls-verify=false", f"docker://{name}", f"oci:{folder}/image:v1")
    bundle = folder / "bundle"
    unpack = ["umoci", "unpack", "--image", f"{folder}/image:v1", str(bundle)]
    subprocess.run(unpack, check=True, capture_output=True)
    config = json.loads((bundle / "config.json").read_bytes())
    config["process"]["terminal"] = False  # there is none here
    config["linux"]["cgroupsPath"] = f"/{container}"
    (bundle / "config.json").write_text(json.dumps(config))
    command = engine.command(bundle, container, state=folder / "state", log=folder / "log")
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ran.returncode == 0, (ran, (folder / "log").read_text())
    assert ran.stdout.decode() == PRINTED
    assert environment("run", ENV) == PRINTED


def test_what_skopeo_tells_of_an_exported_environment(
    environment: Cli, registry: Registry, prefix: str
) -> None:
    name = f"{registry.address}/{prefix}/exported:v1"
    digest = environment.json("export", ENV, f"docker://{name}")["digest"]
    told = seen(name)
    assert (told["Digest"], told["Labels"]) == (digest, {"l": "m"})
    assert told["Env"] == ["GREETING=hello"]
    assert len(told["Layers"]) == 2
    run = seen(name, "--config")["config"]
    assert (run["Entrypoint"], run["Cmd"]) == ([*ENTRYPOINT], [*CMD])
    assert (run["User"], run["WorkingDir"]) == ("user", "/srv")


def test_what_skopeo_tells_of_what_is_pushed(
    environment: Cli, registry: Registry, prefix: str
) -> None:
    """All but the summary of an image, which it refuses by the name of what is there instead."""
    environment("push", ENV, registry.url(prefix))
    environment("push", TOOL, registry.url(prefix))
    name = f"{registry.address}/{prefix}"
    layer = seen(f"{name}/toolkit/t:1", "--raw")
    assert layer["artifactType"] == "application/vnd.dsec.layer.v1"
    assert layer["config"]["mediaType"] == "application/vnd.dsec.layer.config.v1+json"
    config = seen(f"{name}/toolkit/t:1", "--raw", "--config")
    assert (config["kind"], config["name"]) == ("toolkit", "t")
    index = seen(f"{name}/env/e:1", "--raw")
    assert index["artifactType"] == "application/vnd.dsec.environment.v1"
    assert json.loads(index["annotations"]["dev.dsec.environment.run"])["workdir"] == "/srv"
    annotations = [each["annotations"] for each in index["manifests"]]
    assert [each["dev.dsec.layer.kind"] for each in annotations] == ["base", "toolkit"]
    assert [each["dev.dsec.layer.reference"] for each in annotations] == [BASE, TOOL]
    plain = ["skopeo", "inspect", "--tls-verify=false", f"docker://{name}/toolkit/t:1"]
    refused = subprocess.run(plain, capture_output=True, check=False)
    assert refused.returncode != 0
    assert "application/vnd.dsec.layer.config.v1+json" in refused.stderr.decode()
