"""Environments of many layers, through the API."""

import pytest

from dsec_layers.api import composing, looking, mounting, running
from dsec_layers.model.reference import Kind, Reference
from tests.support.cli import BASE, Cli

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci]
ENV = Reference.parse("env/large:v1")


@pytest.fixture
def parts(cli: Cli) -> list[Reference]:
    """A base, a workspace and twenty toolkits, which all write to the same file."""
    names = [f"toolkit/t{number}:1" for number in range(20)]
    cli.add("workspace/w:1", {"shared": "workspace", "project/here": "w"})
    for name in names:
        cli.add(name, {"shared": name, f"tools/{name.replace('/', '-')}": name})
    return [Reference.parse(name) for name in (*names, BASE, "workspace/w:1")]


def test_twenty_toolkits(cli: Cli, parts: list[Reference]) -> None:
    row = composing.compose(cli.bench, parts, ENV)
    kinds = [Kind(layer.partition("/")[0]) for layer in row.layers]
    assert kinds == [Kind.BASE, Kind.WORKSPACE, *[Kind.TOOLKIT] * 20]
    with mounting.mounted(cli.bench, ENV, read_only=True) as rootfs:
        assert (rootfs.target / "shared").read_text() == "toolkit/t19:1"
        assert len(list((rootfs.target / "tools").iterdir())) == 20
        assert (rootfs.target / "project/here").read_text() == "w"
        assert {f"/{path.relative_to(rootfs.target)}" for path in rootfs.target.rglob("*")} == {
            f"/{entry.path.decode()}" for entry in looking.tree(cli.bench, ENV) if entry.path
        }
    assert b"".join(looking.cat(cli.bench, ENV, "/shared")) == b"toolkit/t19:1"
    said: list[bytes] = []
    assert running.run(cli.bench, ENV, ["cat", "/shared"], on_output=said.append) == 0
    assert said == [b"toolkit/t19:1"]
    assert mounting.list_mounts(cli.bench) == []


def test_the_order_of_toolkits_decides(cli: Cli, parts: list[Reference]) -> None:
    composing.compose(cli.bench, parts[::-1], ENV)
    assert b"".join(looking.cat(cli.bench, ENV, "/shared")) == b"toolkit/t0:1"


def test_a_workspace_stands_on_its_base(cli: Cli, parts: list[Reference]) -> None:
    stack = cli.bench.stack(parts[-1])
    assert [layer.config.kind for layer in stack.layers] == [Kind.BASE, Kind.WORKSPACE]
    assert running.run(cli.bench, parts[-1], ["test", "-e", "/project/here"]) == 0
