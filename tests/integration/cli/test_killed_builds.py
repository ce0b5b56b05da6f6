"""A build that is killed at a random moment, again and again: the next one finds nothing of it.

The moments come from a seed that is printed; DSEC_KILL_SEED sets it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.support.cli import BASE, Cli, pids_with
from tests.support.profiles import NIGHTLY

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.oci,
    pytest.mark.timeout(7200),
]

ROUNDS = 50 if NIGHTLY else 8
PATIENCE_S = 60
# Numbers of our own, so that tests at the same time do not see each other's processes.
LONG = f"sleep {5_000_000 + os.getpid()}"
CACHE = "--mount=type=cache,id=c,target=/c,sharing=locked"
# Stages beside one another, a cache that locks, mounts, and processes whose parents have gone.
LAYERFILE = f"""LAYER base x
FROM {BASE} AS low
COPY files /files
RUN {CACHE} echo a > /c/a; {LONG} & sleep 0.2; echo low > /low
RUN {LONG} & ({LONG} & {LONG} &); sh -c 'sh -c "{LONG} &" &'; sleep 0.2; echo low >> /low
FROM {BASE} AS beside
RUN {CACHE} (trap '' TERM INT HUP; {LONG}) & echo b > /c/b; sleep 0.3; echo beside > /beside
FROM {BASE}
COPY --from=beside /beside /
RUN --mount=target=/context --mount=from=low,target=/m,rw cat /m/low > /high; sleep 0.2
COPY --from=low /files /files
WORKDIR /work
RUN {CACHE} cat /c/a /c/b > made; rm -r /files/00*
"""


def write(folder: Path) -> Path:
    (folder / "files").mkdir(parents=True)
    for number in range(200):
        (folder / f"files/{number:03}").write_bytes(f"{number:05}".encode() * 4000)
    (folder / ".dockerignore").write_text("Layerfile\n")
    (folder / "Layerfile").write_text(LAYERFILE)
    return folder


def gone(text: str) -> bool:
    """Whether all processes with `text` in their command line end, without any help."""
    give_up = time.monotonic() + PATIENCE_S
    while pids_with(text):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


def left_leases(cli: Cli) -> None:
    """A killed holder's lease, whole or half written, stays until it has ended: gc removes it."""
    for lease in (cli.home / "store/leases").glob("*"):
        assert lease.stat().st_size < 1 << 20
        lease.unlink()


def test_killed_at_random_moments(cli: Cli) -> None:
    seed = os.environ.get("DSEC_KILL_SEED", str(random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    folder = write(cli.folder / "context")

    def build(tag: str) -> tuple[str | Path, ...]:
        return ("build", folder, "-t", tag, "--epoch", "0")

    started = time.monotonic()
    cli(*build("base/x:whole"))
    took_s = time.monotonic() - started
    digest = cli.json("inspect", "base/x:whole")["digest"]
    for number in range(ROUNDS):
        tag = f"base/x:{number}"
        shutil.rmtree(cli.home / "builder")
        moment_s, whole_group = chance.uniform(0, took_s * 1.1), number % 2 == 1
        with cli.start(*build(tag), prefix=["setsid"]) as child:
            while os.getpgid(child.pid) != child.pid:
                time.sleep(0.001)
            time.sleep(moment_s)
            (os.killpg if whole_group else os.kill)(child.pid, signal.SIGKILL)
            child.communicate()
        what = f"round {number}, after {moment_s:.2f} s{' with its group' * whole_group}"
        completed = child.returncode == 0
        print(what, "completed" if completed else "killed", flush=True)
        took_s = min(took_s, moment_s) if completed else took_s  # the first was slower
        assert gone(LONG.replace(" ", "\0")), what
        if tag in cli.tags():  # all of it was there, or it is not seen
            assert cli.json("inspect", tag)["digest"] == digest, what
            cli("verify", "--stored-only", tag)
        cli(*build(tag))
        assert cli.json("inspect", tag)["digest"] == digest, what
        left_leases(cli)
        assert cli.leftovers() == [], what
        cli("verify", "--stored-only", tag)
        cli("verify", "--stored-only", BASE)
        assert not list((cli.home / "builder/work").glob("*")), what
