"""What is recorded of mounts, shared between machines, and used by the next start."""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError
from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.linux import detached
from dsec_layers.model.reference import Reference
from tests.support.cli import Cli, Ran
from tests.support.packed import pack_files

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse]

BASE, TOOL, ENV = "base/b:1", "toolkit/t:1", "env/e:1"
MEGABYTE = 1 << 20
FILES = {
    f"{folder}/{name}": random.Random(f"{folder}{name}").randbytes(MEGABYTE)
    for folder in ("bin", "lib/used", "lib/unused")
    for name in ("a", "b")
}


@pytest.fixture
def env(cli: Cli) -> str:
    pack_files(cli.bench, Reference.parse(BASE), FILES)
    base = cli.bench.resolve(Reference.parse(BASE))
    tool = {"opt/tool": random.Random(1).randbytes(MEGABYTE), "opt/doc/text": b"x" * MEGABYTE}
    pack_files(cli.bench, Reference.parse(TOOL), tool, base=base)
    cli.compose(ENV, BASE, TOOL)
    return ENV


@pytest.fixture
def url(cli: Cli, env: str) -> str:
    url = f"dir://{cli.folder}/far"
    cli("push", env, url)
    return url


class Runs:
    """Mounts of an environment, in which files are read."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.target = cli.folder / "mnt"

    def run(self, *paths: str, words: tuple[str | Path, ...] = (), store: str = "") -> None:
        options = ("--store", store) if store else ()
        self.cli(*options, "mount", ENV, self.target, *words)
        for path in paths:
            (self.target / path).read_bytes()
        self.cli("umount", self.target)
        self.cli.stop_daemon()  # what is mounted next finds nothing mounted

    def shown(self, reference: str = ENV) -> set[str]:
        return {each["path"] for each in self.cli.json("trace", "show", reference)["files"]}


@pytest.fixture
def runs(cli: Cli, env: str) -> Runs:
    return Runs(cli)


def stats(cli: Cli) -> dict[str, int]:
    counts: dict[str, int] = cli.json("stats")["counts"]
    return counts


def test_runs_are_recorded_and_told_of(cli: Cli, runs: Runs) -> None:
    assert "no accesses" in cli.fails(NotFoundError, "trace", "show", ENV).error
    assert "no accesses" in cli.fails(NotFoundError, "plan", ENV).error
    runs.run("bin/a", "lib/used/a", "opt/tool")
    runs.run("bin/a")
    found = cli.json("report", ENV)
    assert found["runs"] == 2
    base, tool = found["layers"]
    assert base["layer"].startswith(BASE)
    assert 2 * MEGABYTE <= base["touched_bytes"] < 6 * MEGABYTE
    assert base["run_bytes"] < base["touched_bytes"]
    assert (tool["runs"], tool["share"] > 0) == (1, True)
    assert {"/bin/a", "/lib/used/a", "/opt/tool"} <= {each["path"] for each in found["files"]}
    untouched = {each["path"]: each for each in found["untouched"]}
    assert untouched["/lib/unused"]["size_bytes"] == 2 * MEGABYTE
    text = cli("report", ENV)
    assert "NEVER TOUCHED" in text
    assert "/lib/unused" in text
    assert "/lib/used/a" in cli("trace", "show", ENV)


def test_a_run_that_goes_on_is_told_of(cli: Cli, runs: Runs) -> None:
    cli("mount", ENV, runs.target)
    (runs.target / "bin/b").read_bytes()
    assert "/bin/b" in runs.shown()
    (runs.target / "lib/used/b").read_bytes()
    assert "/lib/used/b" in runs.shown()
    assert cli.json("trace", "show", ENV)["runs"] == 1


def test_a_killed_daemon_loses_no_more_than_moments(cli: Cli, runs: Runs) -> None:
    cli("mount", ENV, runs.target)
    (runs.target / "bin/b").read_bytes()
    assert "/bin/b" in runs.shown()  # which saves it
    pid = DaemonClient(cli.home).status().pid
    os.kill(pid, signal.SIGKILL)
    detached.wait_for_exit(pid, 30)
    (runs.target / "lib/used/b").read_bytes()  # served by the successor
    cli("umount", runs.target)
    cli.stop_daemon()
    assert runs.shown() >= {"/bin/b", "/lib/used/b"}
    assert cli.json("trace", "show", ENV)["runs"] == 1


def test_a_plan_is_kept_by_the_start(cli: Cli, runs: Runs, url: str) -> None:
    runs.run("bin/a", "lib/used/a", "opt/tool")
    cli("trace", "push", ENV, url)
    for path in (cli.home / "store").rglob("*"):
        if path.is_file() and path.stat().st_size > MEGABYTE:
            path.unlink()  # packs: what is read comes from the far store
    for path in (cli.home / "cache").rglob("*"):
        if path.is_file():
            path.unlink()
    planned = cli.json("--store", url, "plan", ENV)["total"]
    assert planned["cached_bytes"] == 0
    assert planned["wanted_bytes"] >= 3 * MEGABYTE
    cli("--store", url, "mount", ENV, runs.target)
    wait_for(cli, "fetched_bytes", planned["plain_bytes"])
    assert stats(cli)["store_bytes"] >= planned["fetched_bytes"]
    after = cli.json("--store", url, "plan", ENV)["total"]
    assert (after["fetched_bytes"], after["requests"]) == (0, 0)
    assert after["cached_bytes"] == planned["wanted_bytes"]
    before = stats(cli)["store_requests"]
    assert (runs.target / "bin/a").read_bytes() == FILES["bin/a"]
    assert stats(cli)["store_requests"] == before


def wait_for(cli: Cli, name: str, value: int) -> None:
    while stats(cli)[name] < value:
        pass


@pytest.mark.parametrize("prefetch", ["off", "0", "256k"])
def test_the_budget_is_kept(cli: Cli, runs: Runs, prefetch: str) -> None:
    runs.run("bin/a", "lib/used/a")
    clear_cache(cli)
    cli("mount", ENV, runs.target, "--prefetch", prefetch)
    fetched = stats(cli)["fetched_bytes"]
    assert fetched <= (0 if prefetch != "256k" else 256 << 10)
    assert (runs.target / "bin/a").read_bytes() == FILES["bin/a"]


def clear_cache(cli: Cli) -> None:
    for path in (cli.home / "cache").rglob("*"):
        if path.is_file():
            path.unlink()


def test_what_is_no_budget_is_refused(cli: Cli, runs: Runs) -> None:
    ran = cli.fails(InvalidInputError, "mount", ENV, runs.target, "--prefetch", "much")
    assert ran.hint == "write 200M, auto or off"


def test_a_trace_travels_with_its_environment(cli: Cli, runs: Runs, url: str) -> None:
    runs.run("bin/a", "opt/tool")
    assert cli.json("trace", "push", ENV, url)["stores"] == [url]
    runs.run("bin/b")
    cli("trace", "push", ENV, url)  # takes the place of the first
    second = f"dir://{cli.folder}/copy"
    cli("copy", ENV, "--from", url, "--to", second)
    other = cli.folder / "other"

    def there(*words: str) -> Ran:
        return cli.run("--json", *words, home=other)

    assert there("--store", second, "trace", "show", ENV).status == 0
    found = json.loads(there("trace", "show", ENV).stdout)
    assert found["runs"] == 2
    assert {"/bin/a", "/bin/b", "/opt/tool"} <= {each["path"] for each in found["files"]}
    assert json.loads(there("trace", "rm", ENV).stdout) == {"removed": True}
    assert there("trace", "show", ENV).status == NotFoundError.exit_code
    assert cli.json("trace", "rm", ENV, url) == {"removed": True}
    assert cli.json("trace", "rm", ENV, url) == {"removed": False}


def test_traces_of_other_machines_are_merged(cli: Cli, runs: Runs, tmp_path: Path) -> None:
    runs.run("bin/a")
    (path,) = (cli.home / "traces").glob("*.zst")
    copy = tmp_path / "other.zst"
    copy.write_bytes(path.read_bytes())
    (row,) = cli.json("trace", "merge", copy)
    assert row["runs"] == 2
    copy.write_bytes(b"nonsense")
    assert str(copy) in cli.fails(CorruptError, "trace", "merge", copy).error
    cli.fails(InvalidInputError, "trace", "merge", tmp_path / "missing")


def test_a_damaged_trace_fails_no_mount(cli: Cli, runs: Runs) -> None:
    runs.run("bin/a")
    (path,) = (cli.home / "traces").glob("*.zst")
    path.write_bytes(path.read_bytes()[:-5])
    assert str(path) in cli.fails(CorruptError, "trace", "show", ENV).error
    cli("mount", ENV, runs.target)
    assert (runs.target / "bin/b").read_bytes() == FILES["bin/b"]
    cli("umount", runs.target)
    cli.stop_daemon()
    log = [json.loads(line) for line in (cli.home / "run/daemon.log").read_text().splitlines()]
    assert any("it is ignored" in entry["message"] for entry in log)
    assert "/bin/b" in runs.shown()


def test_a_new_version_starts_by_what_is_known_of_its_layers(cli: Cli, runs: Runs) -> None:
    runs.run("bin/a")
    base = cli.bench.resolve(Reference.parse(BASE))
    pack_files(cli.bench, Reference.parse("toolkit/t:2"), {"opt/new": b"new"}, base=base)
    cli.compose("env/e:2", BASE, "toolkit/t:2")
    cli.fails(NotFoundError, "trace", "show", "env/e:2")
    base_plan, tool_plan = cli.json("plan", "env/e:2")["layers"]
    assert base_plan["wanted_bytes"] >= MEGABYTE
    assert (tool_plan["runs"], tool_plan["wanted_bytes"]) == (0, 0)


@pytest.fixture(autouse=True)
def _unmounted(cli: Cli) -> Iterator[None]:
    yield
    cli.run("umount", "--all", "--lazy")


def test_what_was_put_together_mounts_as_before(cli: Cli, runs: Runs, url: str) -> None:
    runs.run("bin/b", "lib/used/a", "lib/unused/b")
    before = cli.json("plan", ENV)["total"]
    done = cli.json("repack", ENV, "--by-trace", "-t", "env/e:2")
    assert done["before"] != done["after"]
    assert cli.json("plan", "env/e:2")["total"]["requests"] <= before["requests"]
    assert cli.run("verify", "env/e:2").status == 0
    cli("push", "env/e:2", url)
    clear_cache(cli)
    cli("mount", "env/e:2", runs.target)
    for path, data in FILES.items():
        assert (runs.target / path).read_bytes() == data
