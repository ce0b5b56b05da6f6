"""The life of a container: what its command sees, how it ends, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.linux import container, mount, runtime
from dsec_layers.linux.container import Finished
from dsec_layers.linux.ocispec import Bind, Command
from tests.support.rootfs import make_rootfs
from tests.support.roots import Root, mounted_root

pytestmark = [pytest.mark.root, pytest.mark.overlay, pytest.mark.oci]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("programs") / "root"
    make_rootfs(root)
    return root


@pytest.fixture
def root(tmp_path: Path, programs: Path) -> Iterator[Root]:
    with mounted_root(tmp_path / "mounted", [programs]) as root:
        yield root


@pytest.fixture(scope="session")
def runtimes() -> dict[str, runtime.Runtime]:
    working = [found for found in runtime.candidates() if runtime.attempt(found) is None]
    return {Path(found.program).name: found for found in working}


@pytest.fixture(params=["crun", "runc"])
def by(request: pytest.FixtureRequest, runtimes: dict[str, runtime.Runtime]) -> runtime.Runtime:
    if request.param not in runtimes:
        pytest.skip(f"{request.param} does not work here")
    return runtimes[request.param]


class Runner:
    """Runs commands in one root and keeps what they print."""

    def __init__(self, root: Root, folder: Path, by: runtime.Runtime) -> None:
        self.root, self.folder, self.by = root, folder, by
        self._received = bytearray()

    @property
    def output(self) -> bytes:
        return bytes(self._received)

    def __call__(self, *argv: str, **options: object) -> Finished:
        self._received.clear()
        command = Command(rootfs=self.root.path, argv=argv, **options)  # type: ignore[arg-type]
        return container.run(command, self.folder, on_output=self._received.extend, by=self.by)

    def sh(self, script: str, **options: object) -> str:
        finished = self("sh", "-c", script, **options)
        assert finished.status == 0, self.output.decode()
        return self.output.decode()


@pytest.fixture(autouse=True)
def no_cgroup_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Containers of this process have names of their own, for others run on the machine."""
    prefix = f"{container.PREFIX}{os.getpid()}-"
    monkeypatch.setattr(container, "PREFIX", prefix)
    yield
    assert cgroups(f"{prefix}*") == []


@pytest.fixture
def run(root: Root, tmp_path: Path, by: runtime.Runtime) -> Iterator[Runner]:
    folder = tmp_path / "containers"
    yield Runner(root, folder, by)
    assert list(folder.glob("*")) == []


def cgroups(pattern: str) -> list[Path]:
    points = [it for it in mount.mount_points() if it.filesystem in ("cgroup", "cgroup2")]
    return [path for it in points for path in Path(it.target).glob(pattern)]


class TestEnd:
    @pytest.mark.parametrize(
        ("script", "status"),
        [
            ("exit 0", 0),
            ("exit 7", 7),
            ("exit 255", 255),
            ('sh -c "kill -TERM \\$\\$"; exit $?', 128 + signal.SIGTERM),
            # The first process of a PID namespace cannot kill itself.
            ("kill -KILL $$; exit 3", 3),
        ],
    )
    def test_status_is_the_command_s(self, run: Runner, script: str, status: int) -> None:
        assert run("sh", "-c", script).status == status

    def test_a_missing_program_is_127(self, run: Runner) -> None:
        finished = run("no-such-program", "x")
        assert (finished.status, finished.tail) == (127, b"no-such-program: not found\n")

    def test_a_missing_program_with_a_path_is_127(self, run: Runner) -> None:
        assert run("/bin/no-such-program").status == 127

    def test_a_program_that_may_not_be_run_is_126(self, run: Runner) -> None:
        assert run("/etc/passwd").status == 126

    def test_a_runtime_that_fails_is_an_error(self, run: Runner, tmp_path: Path) -> None:
        with pytest.raises(DsecError, match="cannot be made"):
            run("true", binds=[Bind(tmp_path / "missing", "/tmp")])

    def test_a_background_process_that_keeps_the_output_open_ends(self, run: Runner) -> None:
        marker = f"3{os.getpid()}"
        assert run.sh(f"sleep {marker} & echo started") == "started\n"
        assert not running(marker)

    def test_output_is_whole_and_its_tail_is_bounded(self, run: Runner) -> None:
        script = (
            'x=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do x="$x$x"; done; echo $x'
        )
        finished = run("sh", "-c", script)
        assert run.output == b"0123456789abcdef" * 4096 + b"\n"
        assert finished.tail == run.output[-4096:]


class TestInterrupted:
    def test_an_exception_kills_the_container(self, root: Root, tmp_path: Path) -> None:
        marker = f"4{os.getpid()}"

        def interrupt(_: bytes) -> None:
            raise KeyboardInterrupt

        command = sleeper(root, marker)
        with pytest.raises(KeyboardInterrupt):
            container.run(command, tmp_path / "run", on_output=interrupt)
        assert not running(marker)
        assert list((tmp_path / "run").iterdir()) == []

    def test_another_thread_cancels_it(self, run: Runner, root: Root, tmp_path: Path) -> None:
        marker, cancelled = f"5{os.getpid()}", threading.Event()
        command = sleeper(root, marker)
        with pytest.raises(InterruptedError):
            container.run(
                command,
                tmp_path / "run",
                on_output=lambda _: cancelled.set(),
                cancelled=cancelled,
                by=run.by,
            )
        assert not running(marker)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_nothing_outlives_its_caller(
        self,
        root: Root,
        tmp_path: Path,
        by: runtime.Runtime,
        number: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        marker, folder = f"6{os.getpid()}", tmp_path / "run"
        words = sleeper(root, marker).argv
        with caller(root, folder, by, "plain", *words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read(8) == b"started\n"
            watched = [os.pidfd_open(pid) for pid in running(marker)]
            assert watched
            (bundle,) = folder.iterdir()
            process.send_signal(number)
            process.wait()
            for fd in watched:
                select.select([fd], [], [])  # until that process has ended
                os.close(fd)
            assert process.stdout.read() == b""
        assert not running(marker)
        monkeypatch.undo()  # the caller's containers have the usual names
        container.remove_stale(folder)
        assert list(folder.iterdir()) == []
        assert cgroups(bundle.name) == []

    def test_a_running_container_is_not_stale(self, root: Root, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        left: list[int] = []

        def reconcile(_: bytes) -> None:
            container.remove_stale(folder)
            left.append(len(list(folder.iterdir())))

        command = Command(rootfs=root.path, argv=("sh", "-c", "echo x"))
        assert container.run(command, folder, on_output=reconcile).status == 0
        assert left == [1]


class TestWorld:
    def test_root_is_process_1_with_docker_s_capabilities(self, run: Runner) -> None:
        assert run.sh("echo $$") == "1\n"
        assert run.sh("grep CapEff /proc/self/status").split()[1] == "00000000a80425fb"
        assert run.sh("grep NoNewPrivs /proc/self/status").split()[1] == "0"

    def test_a_user_has_its_groups_and_home_and_no_capability(self, run: Runner) -> None:
        found = run.sh(
            "id -u; id -g; id -G; echo $HOME; grep CapEff /proc/self/status", user="user"
        )
        assert found.split()[:5] == ["1000", "1001", "1001", "10", "/home/user"]
        assert found.split()[-1] == "0" * 16

    def test_setuid_programs_work(self, run: Runner) -> None:
        run.sh("cp /bin/id /tmp/id; chmod 4755 /tmp/id")
        assert run.sh("/tmp/id -u", user="user") == "0\n"

    def test_the_usual_devices_and_links(self, run: Runner) -> None:
        names = "null zero full random urandom tty ptmx pts/ptmx fd stdin stdout stderr shm"
        run.sh(f"for n in {names}; do test -e /dev/$n || exit 1; done; echo x > /dev/null")
        run.sh("echo x > /dev/shm/x; echo x > /dev/stderr", user="user")

    def test_system_files_are_read_only_or_masked(self, run: Runner) -> None:
        assert run("sh", "-c", "echo 1 > /proc/sys/vm/drop_caches").status != 0
        assert run("sh", "-c", "echo x > /proc/sysrq-trigger").status != 0
        assert run("touch", "/sys/x").status != 0
        assert run.sh("cat /proc/keys") == ""

    @pytest.mark.parametrize("folder", ["", "/dev"])
    def test_a_device_node_gives_no_device(self, run: Runner, folder: str) -> None:
        """Nodes can be made, for layers may hold them, and opened when they are harmless."""
        run.sh(f"mknod {folder}/nothing c 1 3 && cat {folder}/nothing")
        for node in ("b 7 0", "c 1 1"):
            status = run("sh", "-c", f"mknod {folder}/x {node} && echo made; cat {folder}/x").status
            assert status != 0
            # runc carries output and error apart, so they may mix
            assert sorted(run.output) == sorted(
                f"made\ncat: {folder}/x: Operation not permitted\n".encode()
            )
            run("rm", "-f", "/x")

    def test_nothing_can_be_mounted(self, run: Runner) -> None:
        assert run("mount", "-t", "tmpfs", "none", "/tmp").status != 0
        assert run("umount", "/proc").status != 0

    def test_a_user_namespace_does_not_give_capabilities_back(self, run: Runner) -> None:
        assert run("unshare", "--user", "true").status != 0
        assert b"Operation not permitted" in run.output

    def test_network_none_has_loopback_up_and_nothing_else(self, run: Runner) -> None:
        assert run.sh("ls /sys/class/net", network="none").split() == ["lo"]
        flags = int(run.sh("cat /sys/class/net/lo/flags", network="none"), 16)
        assert flags & 1, "the interface is up"

    def test_host_network_lends_resolver_and_hosts(self, run: Runner) -> None:
        assert run.sh("cat /etc/resolv.conf").encode() == Path("/etc/resolv.conf").read_bytes()
        hosts = run.sh("cat /etc/hosts", hostname="builder")
        assert hosts.encode().startswith(Path("/etc/hosts").read_bytes())
        assert hosts.splitlines()[-1].split() == ["127.0.1.1", "builder"]
        assert run.sh("hostname", hostname="builder") == "builder\n"

    def test_environment_and_folder_are_as_asked(self, run: Runner) -> None:
        found = run.sh('echo "$A|$PATH"; echo $PWD', env={"A": "a b\n'"}, cwd="/tmp")
        assert (
            found == "a b\n'|/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n/tmp\n"
        )

    def test_a_missing_folder_is_an_error_and_not_made(self, run: Runner) -> None:
        with pytest.raises(InvalidInputError, match="does not exist"):
            run("true", cwd="/no/such")
        assert run.root.written() == set()

    def test_input_is_empty(self, run: Runner) -> None:
        assert run.sh("cat; echo end") == "end\n"

    def test_output_and_error_can_be_told_apart(self, root: Root, tmp_path: Path) -> None:
        output: list[bytes] = []
        error: list[bytes] = []
        command = Command(rootfs=root.path, argv=("sh", "-c", "echo out; echo err >&2"))
        container.run(command, tmp_path / "run", on_output=output.append, on_error=error.append)
        assert (b"".join(output), b"".join(error)) == (b"out\n", b"err\n")

    def test_our_input_can_be_inherited(
        self, root: Root, tmp_path: Path, by: runtime.Runtime
    ) -> None:
        with caller(
            root,
            tmp_path / "run",
            by,
            "plain",
            "cat",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.communicate(b"line\n" * 10_000)[0] == b"line\n" * 10_000
        assert process.returncode == 0

    def test_a_terminal_is_handed_on_and_given_back(
        self, root: Root, tmp_path: Path, by: runtime.Runtime
    ) -> None:
        ours, theirs = os.openpty()
        before = termios.tcgetattr(theirs)
        script = "test -t 0 && test -t 1 && read x && echo got $x $TERM; exit 4"
        environment = {"TERM": "not-ours"}
        with (
            os.fdopen(ours, "rb+", buffering=0) as terminal,
            caller(
                root,
                tmp_path / "run",
                by,
                "tty",
                "sh",
                "-c",
                script,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                environment=environment,
            ) as process,
        ):
            terminal.write(b"input\n")
            assert process.wait() == 4
            assert termios.tcgetattr(theirs) == before
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: the other end is closed
                while part := terminal.read(1024):
                    shown += part
        assert b"got input xterm" in shown

    def test_a_terminal_changes_its_size_with_ours(
        self, root: Root, tmp_path: Path, by: runtime.Runtime
    ) -> None:
        ours, theirs = os.openpty()
        script = "trap 'exit 5' WINCH; echo ready; while :; do sleep 0.05; done"
        words = ("tty", "sh", "-c", script)
        ends: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        with (
            os.fdopen(ours, "rb", buffering=0) as terminal,
            caller(root, tmp_path / "run", by, *words, **ends, start_new_session=True) as process,
        ):
            assert b"ready" in terminal.read(1024)
            termios.tcsetwinsize(theirs, (33, 101))
            process.send_signal(signal.SIGWINCH)
            assert process.wait(30) == 5
        os.close(theirs)

    def test_a_tty_that_we_do_not_have_is_refused(self, run: Runner) -> None:
        with pytest.raises(InvalidInputError, match="no terminal"):
            run("true", tty=True)


class TestTraces:
    def test_a_run_writes_nothing_of_its_own(self, run: Runner) -> None:
        run.sh("cat /etc/resolv.conf /etc/hosts; ls /proc /sys /dev")
        assert run.root.written() == set()

    def test_only_what_the_command_writes_is_written(self, run: Runner) -> None:
        run.sh("echo x > /etc/new; echo y >> /etc/resolv.conf; echo z >> /etc/hosts")
        assert run.root.written() == {"etc", "etc/new"}

    def test_files_below_the_mounts_keep_everything(
        self, tmp_path: Path, programs: Path, by: runtime.Runtime
    ) -> None:
        """Runtimes must not touch, chmod or copy up what they mount over."""
        layer = tmp_path / "layer"
        (layer / "etc").mkdir(parents=True)
        for name in ("resolv.conf", "hosts"):
            (layer / "etc" / name).write_text("of the layer\n")
            (layer / "etc" / name).chmod(0o600)
            os.chown(layer / "etc" / name, 5, 6)
        with mounted_root(tmp_path / "m", [layer, programs]) as root:
            Runner(root, tmp_path / "run", by).sh("cat /etc/hosts")
            assert root.written() == set()
            assert (root.path / "etc/hosts").read_text() == "of the layer\n"

    @pytest.mark.parametrize("target", ["../run/systemd/resolve/stub.conf", "/run/r", "/proc/x"])
    def test_a_linked_resolver_is_lent_where_the_link_leads(
        self, tmp_path: Path, programs: Path, by: runtime.Runtime, target: str
    ) -> None:
        layer = tmp_path / "layer"
        (layer / "etc").mkdir(parents=True)
        (layer / "etc/resolv.conf").symlink_to(target)
        with mounted_root(tmp_path / "m", [layer, programs]) as root:
            run = Runner(root, tmp_path / "run", by)
            if not target.startswith("/proc"):
                expected = Path("/etc/resolv.conf").read_bytes()
                assert run.sh("cat /etc/resolv.conf").encode() == expected
            assert root.written() == set()
            assert os.readlink(root.path / "etc/resolv.conf") == target

    def test_without_stubs_mount_points_are_removed_again(
        self, tmp_path: Path, programs: Path, by: runtime.Runtime
    ) -> None:
        before = (programs / "etc").stat().st_mtime_ns
        with mounted_root(tmp_path / "m", [programs], stubs=False) as root:
            Runner(root, tmp_path / "run", by).sh("cat /etc/resolv.conf")
            assert root.written() == {"etc"}
            assert (root.path / "etc").stat().st_mtime_ns == before

    def test_a_read_only_root_without_mount_points_is_refused(
        self, tmp_path: Path, programs: Path, by: runtime.Runtime
    ) -> None:
        target = tmp_path / "root"
        target.mkdir()
        mount.mount_overlay(target, [programs, tmp_path])
        try:
            command = Command(rootfs=target, argv=("true",))
            with pytest.raises(InvalidInputError, match="has no /proc to mount on"):
                container.run(command, tmp_path / "run", by=by)
        finally:
            mount.unmount(target)

    def test_a_read_only_root_has_its_mounts_and_takes_no_write(
        self, run: Runner, tmp_path: Path
    ) -> None:
        script = "! touch /new && touch /dev/shm/new && cat /etc/resolv.conf > /dev/null"
        run.sh(script, read_only=True)
        assert run.root.written() == set()

    def test_binds_are_read_only_unless_asked(
        self, tmp_path: Path, programs: Path, by: runtime.Runtime
    ) -> None:
        lent = tmp_path / "lent"
        lent.mkdir()
        (lent / "file").write_text("lent\n")
        binds = [
            Bind(lent, "/opt/read"),
            Bind(lent, "/opt/write", read_only=False),
            Bind(lent / "file", "/opt/file"),
            Bind(lent, "/dev/lent"),
        ]
        with mounted_root(tmp_path / "m", [programs], binds) as root:
            run = Runner(root, tmp_path / "run", by)
            script = "cat /opt/read/file /opt/file /dev/lent/file; echo x > /opt/write/new"
            assert run.sh(script, binds=binds) == "lent\n" * 3
            assert run("touch", "/opt/read/x", binds=binds).status != 0
            assert root.written() == set()
        assert (lent / "new").read_text() == "x\n"


@contextlib.contextmanager
def caller(
    root: Root,
    folder: Path,
    by: runtime.Runtime,
    *words: str,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that runs one container."""
    module = "tests.support.container_caller"
    process: subprocess.Popen[bytes] = subprocess.Popen(
        [sys.executable, "-m", module, str(root.path), str(folder), by.program, *words],
        cwd=Path(__file__).parents[3],
        env={**os.environ, **(environment or {})},
        **options,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def sleeper(root: Root, marker: str) -> Command:
    return Command(rootfs=root.path, argv=("sh", "-c", f"sleep {marker} & echo started; wait"))


def running(marker: str) -> list[int]:
    """The container's processes: its shell, which has the script as an argument, and its child."""
    wanted = re.compile(rf"sleep[ \0]{marker}\b".encode())
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted.search((folder / "cmdline").read_bytes()):
                found.append(int(folder.name))
        except OSError:
            continue
    return found
