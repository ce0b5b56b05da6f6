from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsec_layers.errors import CapabilityMissingError, DsecError
from dsec_layers.linux import process


def test_output_and_status_are_captured() -> None:
    done = process.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"in", check=False)
    assert (done.status, done.stdout, done.stderr) == (3, b"in", b"err\n")


def test_input_is_empty_unless_given() -> None:
    assert process.run(["cat"]).stdout == b""


def test_a_signal_is_a_status_above_128() -> None:
    assert process.run(["sh", "-c", "kill -9 $$"], check=False).status == 128 + 9


def test_failure_is_told_with_the_last_lines() -> None:
    with pytest.raises(DsecError, match=r"sh failed with status 2: .*line 9 \| why"):
        process.run(["sh", "-c", "for i in 8 9; do echo line $i >&2; done; echo why >&2; exit 2"])


def test_a_missing_program_is_a_missing_capability() -> None:
    with pytest.raises(CapabilityMissingError, match="no-such-program is not installed"):
        process.run(["no-such-program"])


def test_environment_and_folder(tmp_path: Path) -> None:
    done = process.run(["/bin/sh", "-c", "echo $A$HOME; pwd"], env={"A": "a"}, cwd=tmp_path)
    assert done.stdout.decode() == f"a\n{tmp_path}\n"


def test_the_whole_group_is_killed_at_the_end() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as output:
        with process.start(["sh", "-c", "sleep 1000 & echo x; wait"], stdout=writer):
            os.close(writer)
            assert output.read(2) == b"x\n"
        # the grandchild held the pipe; that it ends shows that all are dead
        assert output.read() == b""


def test_a_timeout_is_told() -> None:
    with pytest.raises(TimeoutError, match="sleep did not end within"):
        process.run(["sleep", "1000"], timeout_s=0.01)


def test_a_child_in_our_session_is_killed_alone() -> None:
    with process.start(["sleep", "1000"], own_session=False) as child:
        assert os.getpgid(child.pid) == os.getpgid(0)
    assert child.returncode == -9
