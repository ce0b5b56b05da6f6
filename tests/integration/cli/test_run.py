"""`run`: statuses, options, and what is left of it."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from dsec_layers.errors import InvalidInputError, NotFoundError
from tests.support.cli import BASE, Cli, pids_with

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci]


def test_the_status_is_that_of_the_command(cli: Cli) -> None:
    assert cli("run", BASE, "--", "sh", "-c", "echo out; exit 0") == "out\n"
    failed = cli.run("run", BASE, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (failed.status, failed.text, failed.stderr) == (3, "out\n", "err\n")
    missing = cli.run("run", BASE, "--", "no-such-program")
    assert missing.status == 127
    assert missing.error == "no-such-program: not found"
    for path in ("/etc/group", "/etc"):
        forbidden = cli.run("run", BASE, "--", path)
        assert (forbidden.status, forbidden.error) == (126, f"{path}: permission denied")
    assert cli.leftovers() == []


def test_a_command_that_a_signal_kills(cli: Cli) -> None:
    mark = f"{1_000_000 + os.getpid()}"
    with cli.start("run", BASE, "--", "sh", "-c", f"echo ready; sleep {mark}; :") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        (first,) = filter(_first_of_container, pids_with(mark))
        os.kill(first, signal.SIGKILL)
    assert child.returncode == 128 + signal.SIGKILL
    assert cli.leftovers() == []


def _first_of_container(pid: int) -> bool:
    """Whether a process is number 1 of the container's own namespace, which is two below ours."""
    status = Path(f"/proc/{pid}/status").read_text()
    (numbers,) = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
    return len(numbers) == 3 and numbers[-1] == "1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_all_it_started(cli: Cli, number: signal.Signals) -> None:
    mark = f"{2_000_000 + os.getpid()}"
    with cli.start("run", BASE, "--", "sh", "-c", f"sleep {mark} & echo ready; sleep {mark}") as it:
        assert it.stdout is not None
        assert it.stderr is not None
        assert it.stdout.readline() == b"ready\n"
        it.send_signal(number)
        assert it.stderr.read() == f"error: ended by {number.name}\n".encode()
    assert it.returncode == 128 + number
    assert pids_with(mark) == []
    assert cli.leftovers() == []


def test_variables_folder_and_user(cli: Cli) -> None:
    said = cli(
        *("run", BASE, "--env", "A=1", "-e", "B=x=y", "--workdir", "/tmp", "--user", "user"),
        *("--", "sh", "-c", 'echo "$A $B $PWD"; id -u; id -g'),
    )
    assert said.splitlines() == ["1 x=y /tmp", "1000", "1001"]


def test_a_variable_without_a_value_is_ours(cli: Cli) -> None:
    cli.environ["OURS"] = "handed on"
    said = cli("run", BASE, "-e", "OURS", "-e", "NOBODYS", "--", "env")
    assert "OURS=handed on" in said.splitlines()
    assert "NOBODYS" not in said


def test_an_entrypoint_takes_the_place_of_the_environments_own(cli: Cli) -> None:
    assert cli("run", "--entrypoint", "cat", BASE, "/etc/group").startswith("root:x:0:")
    cli.fails(InvalidInputError, "run", "--entrypoint", "", BASE)


def test_options_of_the_command_are_its_own(cli: Cli) -> None:
    """Also those that `run` has too; between the reference and `--` they are those of `run`."""
    assert cli("run", BASE, "sh", "-e", "-c", 'echo "$@"', "-", "--user", "-v") == "--user -v\n"
    assert cli("run", BASE, "--user", "user", "--", "id", "-u") == "1000\n"
    assert cli("run", BASE, "--", "sh", "-c", 'echo "$@"', "-", "--", "-x") == "-- -x\n"
    for words in (("--bogus", BASE, "true"), (BASE, "--bogus", "--", "true")):
        ran = cli.run("run", *words)
        assert ran.status == 2
        assert "--bogus" in ran.error


def test_no_network(cli: Cli) -> None:
    seen = cli("run", BASE, "--network", "none", "--", "cat", "/proc/net/dev")
    assert [line.split(":")[0].strip() for line in seen.splitlines()[2:]] == ["lo"]


def test_a_terminal_that_is_not_there(cli: Cli) -> None:
    assert "terminal" in cli.fails(InvalidInputError, "run", "-it", BASE, "--", "true").error
    assert cli.leftovers() == []


def test_volumes(cli: Cli) -> None:
    folder = cli.folder / "shared"
    folder.mkdir()
    (folder / "in").write_text("given\n")
    volume = f"{folder}:/new/place"
    assert (
        cli("run", BASE, "-v", volume, "--", "sh", "-c", "cat /new/place/in >/new/place/out") == ""
    )
    assert (folder / "out").read_text() == "given\n"
    refused = cli.run("run", BASE, "-v", f"{volume}:ro", "--", "touch", "/new/place/more")
    assert refused.status == 1
    assert not (folder / "more").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--env", "=x"), "'=x'"),
        (("--volume", "relative"), "relative"),
        (("--volume", "/etc:etc"), "/etc:etc"),
        (("--volume", "/etc:/etc:wo"), "/etc:/etc:wo"),
        (("--volume", "/no/such/place:/x"), "/no/such/place"),
        (("--user", "nobody-here"), "nobody-here"),
        (("--workdir", "/no/such"), "/no/such"),
        (("--workdir", "relative"), "relative"),
    ],
)
def test_wrong_options(cli: Cli, options: tuple[str, ...], named: str) -> None:
    assert named in cli.fails(InvalidInputError, "run", BASE, *options, "--", "true").error
    assert cli.leftovers() == []


def test_what_is_written_is_gone_afterwards(cli: Cli) -> None:
    assert cli("run", BASE, "--", "sh", "-c", "echo x > /new; cat /new") == "x\n"
    assert cli.run("run", BASE, "--", "test", "-e", "/new").status == 1


def test_read_only(cli: Cli) -> None:
    assert cli.run("run", BASE, "--read-only", "--", "touch", "/new").status == 1


def test_an_upper_keeps_what_is_written(cli: Cli) -> None:
    upper = cli.folder / "upper"
    cli("run", BASE, "--upper", upper, "--", "sh", "-c", "echo kept > /new")
    assert (upper / "new").read_text() == "kept\n"
    assert cli("run", BASE, "--upper", upper, "--", "cat", "/new") == "kept\n"


def test_standard_input_is_given_only_when_asked_for(cli: Cli) -> None:
    assert cli("run", BASE, "--", "cat", stdin=b"data") == ""
    assert cli("run", "-i", BASE, "--", "cat", stdin=b"data") == "data"


def test_json_keeps_standard_output_for_the_result(cli: Cli) -> None:
    ran = cli.run("--json", "run", BASE, "--", "sh", "-c", "echo out; exit 3")
    assert (ran.status, ran.stderr) == (3, "out\n")
    assert ran.text == '{\n  "status": 3\n}\n'


def test_a_command_is_needed(cli: Cli) -> None:
    ran = cli.fails(InvalidInputError, "run", BASE)
    assert ran.hint == "give one after --"
    assert cli.fails(NotFoundError, "run", "base/other", "--", "true").hint


def test_the_daemon_serves_one_run_after_another(cli: Cli) -> None:
    cli("run", BASE, "--", "true")
    first = cli.json("daemon", "status")["pid"]
    cli("run", BASE, "--", "true")
    assert cli.json("daemon", "status")["pid"] == first


def test_a_killed_daemon_is_succeeded(cli: Cli) -> None:
    target = cli.folder / "mnt"
    cli("mount", BASE, target)
    os.kill(cli.json("daemon", "status")["pid"], signal.SIGKILL)
    assert cli("run", BASE, "--", "cat", "/etc/group").startswith("root:x:0:")
    assert (target / "etc/group").read_text().startswith("root:x:0:")
    assert cli.json("stats")["layers"]
    cli("umount", target)
    assert cli.leftovers() == []


def test_runs_at_once(cli: Cli) -> None:
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                cli.start("run", BASE, "--", "sh", "-c", f"echo {number} > /x; cat /x")
            )
            for number in range(4)
        ]
        said = [child.communicate()[0] for child in children]
    assert said == [f"{number}\n".encode() for number in range(4)]
    assert cli.leftovers() == []
