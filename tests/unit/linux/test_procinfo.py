import os
import shutil
import subprocess
import sys
from pathlib import Path

from dsec_layers.linux import procinfo


def test_a_process_is_known_by_its_start_until_it_is_gone() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        start = procinfo.start_ticks(process.pid)
        assert start is not None
        assert start == procinfo.start_ticks(process.pid)
        assert start >= (procinfo.start_ticks(os.getpid()) or 0)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert procinfo.start_ticks(process.pid) is None  # a zombie
    assert procinfo.start_ticks(process.pid) is None


def test_a_program_name_may_look_like_the_fields_after_it(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("cat") or "/bin/cat", program)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        try:
            assert procinfo.start_ticks(process.pid) is not None
            (user,) = procinfo.users_below(program)
            assert (user.pid, user.holds) == (process.pid, f"exe {program}")
        finally:
            process.kill()


def test_who_uses_a_folder_is_named_once_with_what_it_holds(tmp_path: Path) -> None:
    inside, beside = tmp_path / "in", tmp_path / "inside"
    inside.mkdir()
    beside.mkdir()
    assert list(procinfo.users_below(inside)) == []
    with (inside / "file").open("w"), (inside / "other").open("w"), (beside / "file").open("w"):
        (user,) = procinfo.users_below(inside)
    assert user.pid == os.getpid()
    assert str(user).endswith(f"(pid {user.pid}, file {inside}/file)")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=inside) as process:
        try:
            assert [str(user) for user in procinfo.users_below(inside)] == [
                f"cat (pid {process.pid}, cwd {inside})"
            ]
        finally:
            process.kill()


def test_this_process_lives_in_its_namespace_in_this_boot() -> None:
    assert procinfo.mount_namespace() in procinfo.mount_namespaces()
    assert procinfo.mount_namespace(2**22 + 1) is None
    program = "from dsec_layers.linux import procinfo; print(procinfo.boot_id())"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert other.stdout.decode().strip() == procinfo.boot_id()
