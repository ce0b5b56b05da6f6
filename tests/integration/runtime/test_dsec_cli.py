"""`dsec` as a user types it, against a real edge."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.edges import PROGRAM, ROOT, RealEdge, left, real_edge
from tests.support.sandboxes import BASE

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]
SMALL = ("--memory", "96M", "--disk", "64M", "--pids", "64")


class Dsec:
    """The program over the home of an edge."""

    def __init__(self, edge: RealEdge) -> None:
        self.edge = edge

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*PROGRAM, "--home", str(self.edge.home), *words],
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )

    def __call__(self, *words: str, stdin: bytes = b"") -> str:
        ran = self.run(*words, stdin=stdin)
        assert ran.returncode == 0, ran
        return ran.stdout.decode()

    def json(self, *words: str) -> Any:
        return json.loads(self("--json", *words))


@pytest.fixture(scope="module")
def dsec() -> Iterator[Dsec]:
    with real_edge() as edge:
        yield Dsec(edge)


@pytest.fixture
def sandbox(dsec: Dsec) -> Iterator[str]:
    made = dsec("run", *SMALL, "--label", "job=17", "-d", BASE).strip()
    yield made
    dsec("stop", made)


def test_run_is_the_command_and_leaves_nothing(dsec: Dsec) -> None:
    ran = dsec.run(
        "run", *SMALL, "-i", BASE, "--", "sh", "-c", "cat; echo e >&2; exit 7", stdin=b"x"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"x", b"e\n")
    missing = dsec.run("run", *SMALL, BASE, "--", "nosuch")
    assert missing.returncode == 127
    assert b"nosuch was not started" in missing.stderr
    told = dsec.run("--json", "run", *SMALL, "-i", BASE, "--", "cat", stdin=b"given")
    assert (told.returncode, json.loads(told.stdout)["stdout"]) == (0, "given")
    assert dsec.json("ps") == []
    assert left(dsec.edge) == []


def test_the_life_of_one(dsec: Dsec, sandbox: str, tmp_path: Path) -> None:
    assert sandbox in dsec("ps")
    assert dsec("ps", "-q", "--label", "job=17") == f"{sandbox}\n"
    assert dsec("exec", "-e", "A=b", "-w", "/tmp", sandbox, "--", "sh", "-c", "echo $A $PWD") == (
        "b /tmp\n"
    )
    told = dsec.run("--json", "exec", sandbox, "--", "sh", "-c", "echo out; exit 4")
    assert told.returncode == 4
    assert json.loads(told.stdout)["stdout"] == "out\n"
    assert "gave back" in dsec("pause", sandbox)
    assert dsec.json("ps")[0]["state"] == "paused"
    dsec("resume", sandbox)
    assert dsec.json("stats")[sandbox]["pids"] >= 1
    (tmp_path / "file").write_text("here\n")
    dsec("cp", str(tmp_path / "file"), f"{sandbox}:/srv/file")
    dsec("cp", f"{sandbox}:/srv/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "here\n"
    (fork,) = dsec("fork", sandbox).split()
    assert dsec("exec", fork, "--", "cat", "/srv/file") == "here\n"
    dsec("stop", fork)
    digest = dsec.json("snapshot", sandbox, "workspace/snap/cli:v1")["digest"]
    assert digest.startswith("sha256:")
    assert "deny  all else" in dsec("net", sandbox)
    log = dsec("logs", sandbox)
    assert "created" in log
    assert "state paused" in log


def test_a_command_that_is_left_and_read_later(dsec: Dsec, sandbox: str) -> None:
    name = dsec("exec", "-d", sandbox, "--", "sh", "-c", "echo one; sleep 0.2; echo two").strip()
    assert dsec("logs", sandbox, name) == "one\ntwo\n"


@pytest.mark.parametrize("dashes", [("--",), ()])
def test_dashes_before_a_command_are_not_of_it(
    dsec: Dsec, sandbox: str, dashes: tuple[str, ...]
) -> None:
    """And what stands behind its first word is all its own."""
    assert dsec("exec", sandbox, *dashes, "ls", "-d", "/etc", "--", "/tmp") == "/etc\n/tmp\n"


def test_a_command_ends_with_who_waits_for_it(dsec: Dsec, sandbox: str) -> None:
    words = [*PROGRAM, "--home", str(dsec.edge.home), "exec", sandbox, "--", "sh", "-c"]
    with subprocess.Popen(
        [*words, "echo up; sleep 6789"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        client.send_signal(signal.SIGINT)
        assert client.wait(30) == 130
    seen = dsec("exec", sandbox, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "sleep 6789" not in seen


def test_why_a_command_was_ended_is_told(dsec: Dsec, sandbox: str) -> None:
    ran = dsec.run("exec", "--timeout", "1s", sandbox, "--", "sleep", "60")
    assert (ran.returncode, ran.stderr) == (137, b"sleep ran longer than it may and was killed\n")


def test_one_that_cannot_keeps_the_others_from_nothing(dsec: Dsec, sandbox: str) -> None:
    ran = dsec.run("pause", "nosuch", sandbox, "neither")
    assert ran.returncode == 4
    assert ran.stdout.startswith(f"{sandbox} gave back".encode())
    assert b"nosuch" in ran.stderr
    assert b"neither" in ran.stderr
    assert dsec.json("ps")[0]["state"] == "paused"


def test_a_terminal_is_passed_through(dsec: Dsec, sandbox: str) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*PROGRAM, "--home", str(dsec.edge.home), "exec", "-it", sandbox, "--", "sh"],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        os.write(ours, b"test -t 1 && echo is''a''tty; exit 3\n")
        seen = b""
        while b"isatty" not in seen:
            assert select.select([ours], [], [], 30)[0], seen
            seen += os.read(ours, 4096)
        assert child.wait(30) == 3
    finally:
        child.kill()
        child.wait()
        os.close(ours)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("exec", "0000", "--", "true"), 4, "there is no sandbox 0000"),
        (("run", "--allow", "no-such-service", BASE, "--", "true"), 23, "no-such-service"),
        (("run", "env/nothing:v1", "--", "true"), None, "env/nothing"),
    ],
)
def test_refusals(dsec: Dsec, words: tuple[str, ...], status: int | None, message: str) -> None:
    ran = dsec.run(*words)
    assert ran.returncode == status or status is None
    assert message in ran.stderr.decode()
    assert "Traceback" not in ran.stderr.decode()
    assert dsec.json("ps") == []


def test_the_edge_tells_how_it_is_and_the_machine_is_looked_at(dsec: Dsec) -> None:
    assert "serving" in dsec("edge", "status")
    checks = {check["name"]: check for check in dsec.json("doctor")}
    assert all(check["works"] for check in checks.values() if check["needed"])
    assert not checks["lxcfs"]["needed"]
    assert {"npm", "pypi"} <= {*checks["services"]["detail"].split(", ")}


def test_ids_are_completed(dsec: Dsec, sandbox: str) -> None:
    words = {"COMP_WORDS": f"dsec stop {sandbox[:3]}", "COMP_CWORD": "2"}
    ran = subprocess.run(
        PROGRAM,
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
        env={
            **os.environ,
            **words,
            "DSEC_HOME": str(dsec.edge.home),
            "_DSEC_COMPLETE": "bash_complete",
        },
    )
    assert ran.stdout == f"plain,{sandbox}\n".encode()
