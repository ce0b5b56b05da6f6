"""What root inside of a sandbox can do to its agent: nothing that reaches out, or tells it lies."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsec_runtime.channel import Channel, frames
from dsec_runtime.channel.frames import Tag, Type
from dsec_runtime.errors import CommandFailedError
from dsec_runtime.spec import ExecSpec
from tests.support import agents, profiles

pytestmark = pytest.mark.root

# What containers give to root, see capabilities(7): not CAP_SYS_PTRACE, CAP_SYS_RESOURCE.
_CAPABILITIES = 0x800405FB
_OPTIONS = (f"--capabilities={_CAPABILITIES:x}",)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[agents.Agent]:
    with agents.running(tmp_path_factory.mktemp("agent"), *_OPTIONS) as running:
        yield running


def inside(agent: agents.Agent, spec: ExecSpec) -> bytes:
    """The output of a command, whatever its status."""
    found = b""

    async def life(channel: Channel) -> None:
        nonlocal found
        process = await channel.exec(spec, f"{os.urandom(8).hex()}")
        found = b"".join([piece.data async for piece in process])

    agents.talk(agent, life)
    return found


_ATTACK = """
import ctypes, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, result):
    print(name, result if result >= 0 else os.strerror(ctypes.get_errno()))
def caught(name, attack):
    try:
        print(name, attack())
    except OSError as error:
        print(name, error.strerror)
here = ctypes.create_string_buffer(64)
part = (ctypes.c_void_p * 2)(ctypes.addressof(here), 64)
far = (ctypes.c_void_p * 2)(0x400000, 64)
for pid in (1, os.getppid()):
    tried('ptrace', libc.ptrace(16, pid, 0, 0))
    tried('seize', libc.ptrace(0x4206, pid, 0, 0))
    tried('read', libc.process_vm_readv(pid, part, 1, far, 1, 0))
    pidfd = libc.syscall(434, pid, 0)
    for fd in range(12):
        tried('pidfd_getfd', libc.syscall(438, pidfd, fd, 0))
    for name in ('mem', 'environ', 'maps', 'auxv', 'syscall'):
        caught(name, lambda: open(f'/proc/{pid}/{name}', 'rb').read(9))
    # Which numbers are in use may be seen, and no more.
    try:
        open_files = [f'fd/{fd}' for fd in os.listdir(f'/proc/{pid}/fd')]
    except PermissionError:
        open_files = ['fd/3']
    for name in ('exe', 'cwd', 'root', *open_files):
        caught(name, lambda: os.readlink(f'/proc/{pid}/{name}'))
        caught(name, lambda: os.open(f'/proc/{pid}/{name}', os.O_RDONLY))
    caught('limit', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)))
    caught('priority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    caught('affinity', lambda: os.sched_setaffinity(pid, {0}))
    caught('idle', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
"""


@pytest.mark.parametrize("user", ["0", "65532"])
def test_nobody_inside_looks_into_the_agent(agent: agents.Agent, user: str) -> None:
    spec = ExecSpec(argv=("python3", "-c", _ATTACK), merge=True, user=user)
    out = inside(agent, spec).decode()
    lines = out.splitlines()
    assert len(lines) >= 60, out
    answers = {line.split(" ", 1)[1] for line in lines}
    assert answers <= {"Operation not permitted", "Permission denied"}, out


_BECOME = """
import os, sys
for become in (
    lambda: os.setuid(65533), lambda: os.setreuid(65533, 0), lambda: os.setreuid(-1, 65533),
    lambda: os.setresuid(65533, 0, 0), lambda: os.setresuid(-1, 65533, -1),
    lambda: os.setresuid(-1, -1, 65533),
):
    try:
        become()
        print("done")
    except OSError as error:
        print(error.strerror)
os.setresuid(0, 65532, 65534)
print(*os.getresuid())
"""


def test_nobody_inside_becomes_the_agent_s_user(agent: agents.Agent) -> None:
    """Who had its user could change its limits."""
    out = inside(agent, ExecSpec(argv=("python3", "-c", _BECOME), merge=True)).decode()
    assert out.splitlines() == [*["Operation not permitted"] * 6, "0 65532 65534"]

    async def life(channel: Channel) -> None:
        with pytest.raises(CommandFailedError, match="the user cannot be taken"):
            await channel.exec(ExecSpec(argv=("true",), user="65533"), "its-user")

    agents.talk(agent, life)


def test_commands_hold_what_was_allowed_and_no_more(agent: agents.Agent) -> None:
    sets = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    for user, held in (("0", _CAPABILITIES), ("1000", 0)):
        status = inside(agent, ExecSpec(argv=("cat", "/proc/self/status"), user=user)).decode()
        found = dict(line.split(":\t", 1) for line in status.splitlines())
        masks = [int(found[name], 16) for name in sets]
        assert masks == [0, held, held, _CAPABILITIES, 0]
        assert found["NoNewPrivs"] == "0"


def test_the_agent_has_a_user_of_its_own_and_files_are_still_root_s(
    agent: agents.Agent, tmp_path: Path
) -> None:
    async def life(channel: Channel) -> None:
        info = await channel.write_file(str(tmp_path / "file"), b"")
        assert (info.uid, info.gid) == (0, 0)

    agents.talk(agent, life)
    status = Path(f"/proc/{agent.pid}/status").read_text()
    assert "Uid:\t65533\t65533\t65533\t65533" in status
    assert "Groups:\t \n" in status


def test_nobody_inside_is_listened_to(agent: agents.Agent) -> None:
    attack = (
        "import socket; s = socket.socket(socket.AF_UNIX);"
        f"s.connect({str(agent.socket)!r}); s.send({_hello()!r}); print(s.recv(100))"
    )
    spec = ExecSpec(argv=("python3", "-c", attack), merge=True)
    out = inside(agent, spec)
    assert out == b"b''\n" or b"Broken pipe" in out or b"reset by peer" in out


def test_commands_without_new_privileges(tmp_path: Path) -> None:
    with agents.running(tmp_path, "--no-new-privileges") as agent:
        for user in ("0", "1000"):
            status = inside(agent, ExecSpec(argv=("cat", "/proc/self/status"), user=user))
            assert b"NoNewPrivs:\t1\n" in status


def test_landlock_holds_for_root(tmp_path: Path) -> None:
    with agents.running(tmp_path, "--landlock", *_OPTIONS) as agent:

        async def life(channel: Channel) -> None:
            if not channel.features & 2:
                pytest.skip("this kernel's Landlock does not know scopes")
            sleeper = await channel.exec(ExecSpec(argv=("sleep", "100")), "sleeper")
            # Commands are of one domain; device nodes are made by nobody.
            script = f"kill -TERM {sleeper.pid} && mknod {tmp_path}/null c 1 3"
            process = await channel.exec(ExecSpec(argv=("bash", "-c", script), merge=True), "one")
            out = b"".join([piece.data async for piece in process])
            assert (await sleeper.wait()).signal == 15
            assert b"Permission denied" in out
            # Programs that change the user still do: no new privileges were not given up.
            status = await channel.exec(ExecSpec(argv=("cat", "/proc/self/status")), "two")
            assert b"NoNewPrivs:\t0\n" in b"".join([piece.data async for piece in status])

        agents.talk(agent, life)


def test_landlock_lets_files_move_from_folder_to_folder(tmp_path: Path) -> None:
    """It forbids that (EXDEV) unless it is told that this is fine (REFER)."""
    script = "import os; os.mkdir('a'); os.mkdir('b'); open('a/f', 'w').close();"
    script += "os.rename('a/f', 'b/f'); os.link('b/f', 'a/l'); os.rename('b', 'a/b'); print('done')"
    with agents.running(tmp_path, "--landlock=require", *_OPTIONS) as agent:
        spec = ExecSpec(argv=("python3", "-c", script), cwd=str(tmp_path), merge=True)
        assert inside(agent, spec) == b"done\n"

        async def life(channel: Channel) -> None:
            await channel.move(f"{tmp_path}/a/b/f", f"{tmp_path}/f")
            assert (tmp_path / "f").exists()

        agents.talk(agent, life)


# ---- the protocol ----


def _hello() -> bytes:
    fields: list[tuple[int, frames.Value]] = [
        (Tag.NONCE, b"n" * 16),
        (Tag.VERSION, frames.VERSION),
    ]
    return frames.encode(Type.HELLO, payload=frames.encode_fields(fields))


def test_connections_have_a_bound_and_their_places_are_given_again(agent: agents.Agent) -> None:
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(24)]
            answered = 0
            for peer in peers:
                peer.connect(str(agent.socket))
                with contextlib.suppress(OSError):
                    peer.sendall(_hello())
                    answered += bool(peer.recv(4096))
            assert answered == 16
        # The places are free once the agent has seen the ends.
        with socket.socket(socket.AF_UNIX) as peer:
            while not _greets(agent):
                pass


def _greets(agent: agents.Agent) -> bool:
    with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(OSError):
        peer.connect(str(agent.socket))
        peer.sendall(_hello())
        return bool(peer.recv(4096))
    return False


_VALUES = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 64),
    st.binary(max_size=40),
    st.sampled_from(["/", "/tmp/none/such", "one", "\0", ""]),
)
# Without those that would write to or remove files of this machine, or set its clock.
_HARMLESS = [
    kind
    for kind in Type
    if kind
    not in {
        *(Type.WRITE, Type.MKDIR, Type.MOVE, Type.REMOVE, Type.CHANGE, Type.LINK),
        *(Type.TREE_WRITE, Type.CLOCK, Type.NOTHING),
    }
]
_PAYLOADS = st.one_of(
    st.lists(st.tuples(st.integers(0, 50), _VALUES), max_size=8).map(frames.encode_fields),
    st.binary(max_size=64),
)
_FRAMES = st.builds(
    lambda kind, channel, flags, payload: frames.encode(kind, channel, payload, flags=flags),
    st.one_of(st.sampled_from(_HARMLESS), st.integers(0x65, 255)),
    st.integers(0, 3),
    st.integers(0, 3),
    _PAYLOADS,
)
_STREAMS = st.lists(st.one_of(_FRAMES, _FRAMES, _FRAMES, st.binary(max_size=30)), max_size=12)


@settings(profiles.fewer, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stream=_STREAMS, greets=st.booleans())
def test_no_bytes_of_a_host_harm_the_agent(
    agent: agents.Agent, stream: list[bytes], greets: bool
) -> None:
    before = _hello() if greets else b""
    with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(OSError):
        peer.settimeout(5)
        peer.connect(str(agent.socket))
        peer.sendall(before + b"".join(stream))
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass

    async def life(channel: Channel) -> None:
        await channel.ping()

    agents.talk(agent, life)
