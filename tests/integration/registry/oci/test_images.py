"""Images in registries: imported, exported, and built on."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from dsec_layers.errors import InvalidInputError, NotFoundError, StoreError
from tests.integration.registry.oci.conftest import Put
from tests.support.cli import BASE, Cli, bare, base_store, cli
from tests.support.gateway import Fault, Gateway, always, once
from tests.support.oci_registry import Registry, layers, trust
from tests.support.ocis import LAYER, Image
from tests.support.ports import free_port

__all__ = ["bare", "base_store", "cli"]

pytestmark = [pytest.mark.peers("docker-registry", "skopeo"), pytest.mark.root]

DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@pytest.mark.parametrize(
    ("pack", "layer_type"),
    [(bytes, LAYER), (gzip.compress, f"{LAYER}+gzip"), (zstandard.compress, f"{LAYER}+zstd")],
)
def test_an_image_is_imported(
    bare: Cli, registry: Registry, put: Put, pack: Callable[[bytes], bytes], layer_type: str
) -> None:
    image = Image()
    image.manifests.append(
        image.image(layers(7), pack=pack, layer_type=layer_type, run={"Env": ["A=1"]})
    )
    trust(bare.home, registry.address)
    name = f"{registry.address}/{put(image)}"
    shown = bare.run("--progress", "json", "import", f"docker://{name}", "base/x:1")
    assert shown.status == 0, shown
    events = [json.loads(line) for line in shown.stderr.splitlines()]
    assert any(event["title"] == f"fetch docker://{name}" for event in events)
    (config,) = bare.json("inspect", "base/x:1")["configs"]
    assert config["provenance"]["inputs"]["image"].startswith(f"{name}@sha256:")
    assert config["run"] == {"env": {"A": "1"}}
    assert bare("cat", "base/x:1", "/f6") == "6" * 3000
    bare("import", str(image.write(bare.folder / "layout")), "base/local:1")
    (local,) = bare.json("inspect", "base/local:1")["configs"]
    assert local["tree_digest"] == config["tree_digest"]


def test_an_image_of_docker(bare: Cli, registry: Registry, put: Put) -> None:
    image = Image()
    image.manifests.append(image.image(layers(), pack=gzip.compress, layer_type=f"{LAYER}+gzip"))
    trust(bare.home, registry.address)
    name = put(image, "image:1", "--format", "v2s2")
    bare("import", f"docker://{registry.address}/{name}", "base/x:1")
    assert bare("cat", "base/x:1", "/f2") == "2" * 3000


def test_an_index_with_other_platforms_and_attestations(
    bare: Cli, front: Gateway, registry: Registry, put: Put, prefix: str
) -> None:
    image = Image()
    here = image.image(layers(), platform={"os": "linux", "architecture": "amd64"})
    image.manifests.append(here)
    put(image, "image:1", "--preserve-digests")
    platform = {"os": "linux", "architecture": "riscv64"}
    other = image.image(layers(1), architecture="riscv64", platform=platform)
    attested = {"vnd.docker.reference.type": "attestation-manifest"}
    attestation = image.image([b"a statement"], annotations=attested)
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [other, attestation, here],
    }
    data = json.dumps(index).encode()
    kind = {"Content-Type": "application/vnd.oci.image.index.v1+json"}
    front.plan = always(lambda asked: asked.path.endswith("/manifests/2"), Fault(200, kind, data))
    trust(bare.home, front.address)
    bare("import", f"docker://{front.address}/{prefix}/image:2", "base/x:1")
    assert bare("cat", "base/x:1", "/f2") == "2" * 3000
    index["manifests"] = [other, attestation]
    front.plan = always(
        lambda asked: asked.path.endswith("/manifests/2"),
        Fault(200, kind, json.dumps(index).encode()),
    )
    failed = bare.fails(
        InvalidInputError, "import", f"docker://{front.address}/{prefix}/image:2", "base/x:2"
    )
    assert "no image for linux/" in failed.error
    assert "riscv64" in failed.hint


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"schemaVersion": 1, "name": "x", "fsLayers": []}, "schema 1"),
        ({"schemaVersion": 2, "config": {}, "layers": 3}, "manifest"),
    ],
)
def test_what_is_no_image_is_refused_by_name(
    bare: Cli, front: Gateway, document: object, message: str
) -> None:
    front.plan = always(lambda _: True, Fault(200, body=json.dumps(document).encode()))
    trust(bare.home, front.address)
    ran = bare.run("import", f"docker://{front.address}/x:1", "base/x:1")
    assert ran.status in (3, 5)
    assert message in ran.error


def test_what_breaks_off_leaves_nothing(bare: Cli, front: Gateway, put: Put) -> None:
    image = Image()
    image.manifests.append(image.image(layers(6)))
    name = put(image)
    trust(bare.home, front.address)

    def is_last(asked: object) -> bool:
        return "blobs/sha256" in asked.path and len(front.methods("GET", "blobs/")) > 4  # type: ignore[attr-defined]

    front.plan = always(is_last, Fault(404))
    bare.fails(NotFoundError, "import", f"docker://{front.address}/{name}", "base/x:1")
    assert bare.leftovers() == []
    assert bare.tags() == []
    front.plan = once(is_last, Fault(cut=5))
    bare("import", f"docker://{front.address}/{name}", "base/x:1")


def test_export_and_back(cli: Cli, registry: Registry, prefix: str) -> None:
    trust(cli.home, registry.address)
    cli.add("toolkit/t:1", {"t": "text"})
    cli("compose", BASE, "toolkit/t:1", "-t", "env/e:1")
    target = f"docker://{registry.address}/{prefix}/exported:v1"
    first = cli.json("export", "env/e:1", target)
    assert first["sent_bytes"] > 1000
    assert first["name"] == "v1"
    again = cli.json("export", "env/e:1", target)
    assert (again["sent_bytes"], again["digest"]) == (0, first["digest"])
    layout = cli.json("export", "env/e:1", f"oci:{cli.folder}/layout:v1")
    assert layout["digest"] == first["digest"]
    seen = subprocess.run(
        ["skopeo", "inspect", "--tls-verify=false", target], check=True, capture_output=True
    )
    assert json.loads(seen.stdout)["Digest"] == first["digest"]
    cli("import", target, "base/back:1")
    cli("import", f"{cli.folder}/layout", "base/local:1")
    found = [cli.json("inspect", f"base/{name}:1")["configs"] for name in ("back", "local")]
    assert found[0][0]["tree_digest"] == found[1][0]["tree_digest"]
    for bad in (f"docker://{registry.address}/UPPER:1", f"docker://x@sha256:{'0' * 64}"):
        cli.fails(InvalidInputError, "export", "env/e:1", bad)
    cli.fails(StoreError, "export", "env/e:1", "docker://127.0.0.1:9/x:1")


@pytest.mark.oci
@pytest.mark.overlay
class TestBuilding:
    """A Dockerfile whose FROM names an image."""

    @pytest.fixture
    def image(self, cli: Cli, registry: Registry, prefix: str) -> str:
        """An image with a shell; the home has no layer of it yet."""
        trust(cli.home, registry.address)
        name = f"{registry.address}/{prefix}/small:1"
        cli("export", BASE, f"docker://{name}")
        return name

    def dockerfile(self, cli: Cli, text: str) -> tuple[str, ...]:
        (cli.folder / "context").mkdir(exist_ok=True)
        (cli.folder / "context" / "f").write_text("of the context")
        path = cli.folder / "Dockerfile"
        path.write_text(text)
        return ("build", "-f", str(path), f"{cli.folder}/context")

    def test_from_an_image(self, cli: Cli, image: str) -> None:
        text = (
            f"FROM {image} AS first\nRUN echo made > /made\n"
            f"FROM {image}\nCOPY --from=first /made /copied\nCOPY --from={image} /bin/sh /sh2\n"
            f"RUN --mount=from={image},target=/mnt test -e /mnt/bin/sh && echo seen > /seen\n"
        )
        build = self.dockerfile(cli, text)
        ran = cli.run(*build, "-t", "toolkit/t:1")
        assert ran.status == 0, ran
        assert ran.stderr.count("importing") == 1
        base = "base/" + image.replace(":", "_", 1)
        assert base in cli.tags()
        assert cli("cat", "toolkit/t:1", "/copied") == "made\n"
        assert cli("cat", "toolkit/t:1", "/seen") == "seen\n"
        top = cli.json("inspect", "toolkit/t:1")["configs"][-1]
        inputs = top["provenance"]["inputs"]
        assert inputs[f"image:{image}"].startswith("sha256:")
        assert inputs[f"layer:{base}"] == top["provenance"]["base"]
        (cli.home / "registries.toml").unlink()  # from here on the registry cannot be reached
        again = cli.json(*build, "-t", "toolkit/t:2")
        assert again["digest"] == cli.json("inspect", "toolkit/t:1")["digest"]
        cli(*build, "-t", "base/whole:1")

    def test_pull_asks_anew(self, cli: Cli, image: str) -> None:
        build = self.dockerfile(cli, f"FROM {image}\nCOPY f /f\n")
        cli(*build, "-t", "toolkit/t:1")
        assert "importing" not in cli.run(*build, "--pull", "-t", "toolkit/t:2").stderr
        cli.add("base/other:1", {"new": "new"})
        cli("export", "base/other:1", f"docker://{image}")
        assert "importing" not in cli.run(*build, "-t", "toolkit/t:3").stderr
        assert "importing" in cli.run(*build, "--pull", "-t", "toolkit/t:4").stderr
        before, after = (cli.json("inspect", f"toolkit/t:{tag}") for tag in (3, 4))
        assert before["digest"] != after["digest"]

    def test_without_the_registry_the_error_names_line_and_mend(self, cli: Cli) -> None:
        (cli.home / "registries.toml").unlink(missing_ok=True)
        text = '[registry."docker.io"]\nmirrors = ["127.0.0.1:9"]\n[registry."nobody.invalid"]\n'
        trust(cli.home, more=text)
        build = self.dockerfile(cli, "\nFROM nobody.invalid/python:3.11-slim\n")
        failed = cli.fails(StoreError, *build, "-t", "base/x:1")
        assert "Dockerfile:2: the image nobody.invalid/python:3.11-slim is not here" in failed.error
        assert "base/nobody.invalid/python:3.11-slim" in failed.hint
        assert "--build-context" in failed.hint

    def test_build_contexts_put_things_in_the_place_of_images(self, cli: Cli, image: str) -> None:
        build = self.dockerfile(cli, "FROM some.invalid/python:3\nCOPY --from=extra:1 /f /g\n")
        layout, docker = f"{cli.folder}/layout", f"{cli.folder}/d.tar"
        cli("export", BASE, f"oci:{layout}:v1")
        cli("export", BASE, f"docker-archive:{docker}:small:1")
        extra = f"--build-context=extra:1={cli.folder}/context"
        digests = set()
        for number, value in enumerate(
            (
                f"docker-image://{image}",
                f"oci-layout://{layout}:v1",
                f"docker-archive://{docker}",
                f"layer:{BASE}",
            )
        ):
            given = f"--build-context=some.invalid/python:3={value}"
            made = cli.json(*build, given, extra, "--epoch=0", "-t", f"base/b{number}:1")
            assert cli("cat", f"base/b{number}:1", "/g") == "of the context"
            (config,) = cli.json("inspect", made["reference"])["configs"]
            digests.add(config["tree_digest"])
        assert len(digests) == 1
        for bad in ("x", "x=", "x=ftp://y", "x=docker-image://UPPER", "x=layer:nothing"):
            cli.fails(InvalidInputError, *build, f"--build-context={bad}", "-t", "base/x:1")
        gone = f"--build-context=x=oci-layout://{cli.folder}/gone"
        cli.fails(NotFoundError, *build, gone, "-t", "base/x:1")

    def test_what_an_image_leaves_to_builds_on_it(
        self, cli: Cli, registry: Registry, put: Put, image: str
    ) -> None:
        layout = Path(f"{cli.folder}/layout")
        cli("export", BASE, f"oci:{layout}:v1")
        made = Image()
        index = json.loads((layout / "index.json").read_bytes())
        digest = index["manifests"][0]["digest"].removeprefix("sha256:")
        manifest = json.loads((layout / "blobs/sha256" / digest).read_bytes())
        blobs = [
            gzip.decompress((layout / "blobs/sha256" / it["digest"][7:]).read_bytes())
            for it in manifest["layers"]
        ]
        triggers = ["ENV FROM_TRIGGER=1", "COPY f /triggered", "RUN echo $FROM_TRIGGER > /ran"]
        made.manifests.append(made.image(blobs, run={"OnBuild": triggers}))
        name = f"{registry.address}/{put(made, 'onbuild:1')}"
        build = self.dockerfile(cli, f"FROM {name}\nRUN cat /triggered /ran > /both\n")
        cli(*build, "-t", "toolkit/t:1")
        assert cli("cat", "toolkit/t:1", "/both") == "of the context1\n"


def test_mirrors_come_first_and_the_registry_last(
    bare: Cli, registry: Registry, put: Put, prefix: str
) -> None:
    image = Image()
    image.manifests.append(image.image(layers()))
    name = put(image)
    nobody = f"127.0.0.1:{free_port()}"
    mirrors = f'"{nobody}/x", "{registry.address}/{prefix}"'
    trust(
        bare.home, registry.address, nobody, more=f'[registry."docker.io/lib"]\nmirrors=[{mirrors}]'
    )
    bare("import", "docker://lib/image:1", "base/x:1")
    (config,) = bare.json("inspect", "base/x:1")["configs"]
    assert config["provenance"]["inputs"]["image"].startswith("docker.io/lib/image:1@")
    (bare.home / "registries.toml").write_text("[registry.x]\nmirror = 3\n")
    failed = bare.fails(InvalidInputError, "import", f"docker://{name}", "base/x:1")
    assert "registries.toml" in failed.error
