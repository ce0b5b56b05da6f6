"""The main job, from nothing to a command in a lazily mounted environment, step by step.

Runs the commands that the README shows, as a user would type them, on a state folder of its own
below the clone. A second run finds the finished layers in place and shows what is cached. Needs
root; `make quickstart` sees to that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsec_runtime.errors import SandboxError
from dsec_runtime.sdk import DSecClient, DSecContainerRunArgs

Result = Mapping[str, Any]
ROOT = Path(__file__).resolve().parent.parent
BASE, PYTHON = "base/debian:12", "base/python:3.11"
WORKSPACE, TOOLKIT = "workspace/pallets/flask:v1", "toolkit/harness:v1"
ENVIRONMENT = "env/demo:v1"
SOURCE_DATE_EPOCH = "1764374400"


class StepError(Exception):
    """A command of the quickstart failed; its own output says why."""


@dataclass
class Quickstart:
    """Two machines in one folder.

    `build` makes and pushes the layers, `node` has nothing and mounts them lazily.
    """

    state: Path
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    stored_bytes: int = 0  # of the whole environment, as a full pull would move it

    @property
    def store(self) -> str:
        """The folder that stands for a mounted 3FS, as a URL."""
        return f"threefs://{self.state}/3fs"

    def dsec(
        self, machine: str, *words: str, stdin: int | None = None, silent: bool = False
    ) -> Any:
        """Run `dsec-layers --json` on one of the two machines and return its result."""
        program = [str(Path(sys.executable).parent / "dsec-layers")]
        shown = shlex.join(["dsec-layers", *words])
        if not silent:
            print(f"\n[{machine}] $ {shown}", flush=True)
        command = [*program, "--home", str(self.state / machine), "--json", *words]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH}
        done = subprocess.run(
            command, stdin=stdin, stdout=subprocess.PIPE, env=environ, check=False
        )
        if done.returncode:
            raise StepError(f"{shown} failed with status {done.returncode}")
        return json.loads(done.stdout)

    def stop_all(self) -> None:
        """Leave nothing mounted and no daemon running."""
        for machine in ("build", "node"):
            if (self.state / machine).exists():
                self.dsec(machine, "umount", "--all", silent=True)
                self.dsec(machine, "daemon", "stop", "--force", silent=True)

    def row(self, step: str, started: float, told: str) -> None:
        """Note one line of the table, and print it where it belongs."""
        seconds = f"{time.monotonic() - started:.2f}"
        self.rows.append((step, seconds, told))
        print(f"  {step}: {seconds} s" + (f", {told}" if told else ""), flush=True)

    def fetched(self) -> str:
        """How much of the environment has come from the store by now."""
        by_now = self.dsec("node", "stats", silent=True)["total"]["stored_bytes"]
        share = 100 * by_now / max(1, self.stored_bytes)
        return (
            f"{megabytes(by_now)} of {megabytes(self.stored_bytes)} fetched by now, {share:.0f} %"
        )


def main() -> int:
    """Run all steps, print the table, leave nothing mounted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--state", type=Path, default=ROOT / ".quickstart", help="state folder (on a disk)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the environment mounted on STATE/mnt"
    )
    options = parser.parse_args()
    run = Quickstart(options.state.absolute())
    (run.state / "3fs").mkdir(parents=True, exist_ok=True)
    try:
        make_layers(run)
        use_layers(run, keep=options.keep)
    except StepError as error:
        print(f"\nquickstart: {error}", file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            run.stop_all()
    print_table(run.rows)
    print_farewell(run.state)
    return 0


def make_layers(run: Quickstart) -> None:
    """On the build machine.

    A base from mmdebstrap, three Layerfiles, one environment, pushed to the 3FS folder.
    """
    started = time.monotonic()
    made = import_debian(run)
    run.row(f"import {BASE}", started, told(made))
    for folder, reference in (
        ("python", PYTHON),
        ("workspace-flask", WORKSPACE),
        ("toolkit-harness", TOOLKIT),
    ):
        started = time.monotonic()
        made = run.dsec(
            "build", "build", str(ROOT / "layerfiles" / folder), "-t", reference, "--host-mirrors"
        )
        run.row(f"build {reference}", started, told(made))
    started = time.monotonic()
    run.dsec("build", "compose", PYTHON, WORKSPACE, TOOLKIT, "-t", ENVIRONMENT)
    run.row(f"compose {ENVIRONMENT}", started, "metadata only")
    started = time.monotonic()
    moved = run.dsec("build", "push", ENVIRONMENT, run.store)
    run.stored_bytes = moved["sent_bytes"] + moved["skipped_bytes"]
    run.row("push to the 3FS folder", started, f"{megabytes(moved['sent_bytes'])} sent")


def import_debian(run: Quickstart) -> Any:
    """`mmdebstrap | dsec-layers import -`, unless the base is there."""
    listed = run.dsec("build", "ls", silent=True)
    if any(row["reference"] == BASE for row in listed):
        return run.dsec("build", "inspect", BASE)
    words = ["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", "-"]
    print(f"\n[build] $ {shlex.join(words)} |", flush=True)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environ) as bootstrap:
        assert bootstrap.stdout is not None
        made = run.dsec("build", "import", "-", BASE, stdin=bootstrap.stdout.fileno())
    if bootstrap.returncode:
        raise StepError(f"mmdebstrap failed with status {bootstrap.returncode}")
    return made


def use_layers(run: Quickstart, *, keep: bool) -> None:
    """On the node.

    Nothing is local; the environment is mounted lazily and the project's own tests run in it.
    """
    run.stop_all()
    shutil.rmtree(run.state / "node", ignore_errors=True)
    mount_point = run.state / "mnt"
    store = ("--store", run.store)
    started = time.monotonic()
    run.dsec("node", *store, "mount", ENVIRONMENT, str(mount_point))
    run.row(f"mount {ENVIRONMENT}", started, "nothing local before")
    for title, command in (
        ("first command", ["python3", "-c", "import json, ssl, sqlite3"]),
        ("the project's tests", ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]),
        ("a tool of the toolkit", ["harness", "rg", "--count", "def test_", "tests"]),
    ):
        started = time.monotonic()
        run.dsec("node", *store, "run", ENVIRONMENT, "--", *command)
        run.row(title, started, run.fetched())
    started = time.monotonic()
    run.dsec("node", *store, "verify", ENVIRONMENT)
    run.row(f"verify {ENVIRONMENT}", started, "every field and byte")
    use_sandboxes(run)
    if not keep:
        started = time.monotonic()
        run.dsec("node", "umount", str(mount_point))
        run.row("umount", started, "")


def use_sandboxes(run: Quickstart) -> None:
    """On the node: an edge, and sandboxes of it by the SDK, as the README shows them."""
    home = run.state / "node"
    program = Path(sys.executable).parent / "dsec"
    words = [str(program), "--home", str(home), "edge", "--store", run.store]
    print("\n[node] $ dsec edge &", flush=True)
    with (home / "edge.log").open("ab") as log:
        edge = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        asyncio.run(session(run, f"unix://{home}/run/edge.sock"))
    except SandboxError as error:
        raise StepError(f"{error.message}; {home}/edge.log tells more") from error
    finally:
        edge.terminate()
        edge.wait()


async def session(run: Quickstart, address: str) -> None:
    """A sandbox: made, used, paused, forked, ended."""
    async with DSecClient(address, patience_s=60.0) as client:
        started = time.monotonic()
        args = DSecContainerRunArgs(environment=ENVIRONMENT, memory_limit_mb=512)
        sandbox = await client.run_container(args, timeout=120)
        run.row("make a sandbox", started, f"id {sandbox.id}")
        started = time.monotonic()
        result = await sandbox.run_shell("echo hello world", check=True)
        run.row("run_shell", started, result.text.strip())
        started = time.monotonic()
        freed = await sandbox.pause()
        run.row("pause it", started, f"{megabytes(freed)} given back")
        started = time.monotonic()
        (fork,) = await sandbox.fork()
        run.row("fork it", started, f"id {fork.id}")
        started = time.monotonic()
        for each in (fork, sandbox):
            await each.stop()
        run.row("stop both", started, "")


def told(made: Result) -> str:
    """The sizes of a layer in words."""
    content, stored = megabytes(made["content_bytes"]), megabytes(made["stored_bytes"])
    return f"{made['entries']} entries, {content}, {stored} stored"


def megabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:.1f} MB"


def print_table(rows: list[tuple[str, str, str]]) -> None:
    """The steps with seconds and bytes."""
    width = max(len(row[0]) for row in rows)
    print(f"\n{'step':<{width}}  {'seconds':>8}  what")
    for step, seconds, what in rows:
        print(f"{step:<{width}}  {seconds:>8}  {what}")


def print_farewell(state: Path) -> None:
    """What is left, and how to go on."""
    program = Path(sys.executable).parent
    print(f"""
Both machines are folders of {state}; `make clean` removes them. To go on by hand, as root:

  export PATH={shlex.quote(str(program))}:$PATH DSEC_HOME={shlex.quote(str(state / "build"))}
  dsec-layers ls
  dsec-layers run -it {ENVIRONMENT} -- bash
  dsec edge & dsec run -it {ENVIRONMENT} -- bash""")


if __name__ == "__main__":
    sys.exit(main())
