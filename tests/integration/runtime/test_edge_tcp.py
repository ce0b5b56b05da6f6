"""An edge on TCP: TLS, tokens, and sandboxes that are nobody else's business."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dsec_runtime import errors
from dsec_runtime.edge.auth import add
from dsec_runtime.sdk import DSecClient
from tests.support.edges import RealEdge, args, real_edge
from tests.support.fncalls import task
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]


class Remote:
    """An edge that listens on TCP, and how to reach it there."""

    def __init__(self, edge: RealEdge, port: int, certificate: Path, tokens: Path) -> None:
        self.edge = edge
        self.url = f"https://127.0.0.1:{port}"
        self.trust = ssl.create_default_context(cafile=str(certificate))
        self.tokens = tokens

    def client(self, token: str | None) -> DSecClient:
        return DSecClient(self.url, token=token, lease_s=None, verify=self.trust, patience_s=0.0)


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        certificate, key = make_certificate(folder)
        add(folder / "tokens", "first")
        options = ("--listen", f"127.0.0.1:{port}", "--tokens", str(folder / "tokens"))
        tls = ("--certificate", str(certificate), "--key", str(key))
        with real_edge(*options, *tls) as edge:
            yield Remote(edge, port, certificate, folder / "tokens")


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edge")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.parametrize("token", [None, "wrong", ""])
async def test_without_a_token_nobody_comes_in(remote: Remote, token: str | None) -> None:
    client = remote.client(token)
    with pytest.raises(errors.UnauthorizedError):
        await client.open()
    for path in ("/openapi.json", "/metrics", "/v1/health", "/nothing"):
        answer = httpx.get(remote.url + path, verify=remote.trust)
        assert answer.status_code == 401


async def test_another_certificate_is_not_believed(remote: Remote) -> None:
    client = DSecClient(remote.url, token="x", patience_s=0.0)
    with pytest.raises(errors.EdgeUnreachableError, match="certificate"):
        await client.open()


async def test_plain_http_is_not_answered(remote: Remote) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(remote.url.replace("https", "http") + "/v1/health")


async def test_each_sees_their_own_and_an_operator_sees_all(remote: Remote) -> None:
    one, two = add(remote.tokens, "one"), add(remote.tokens, "two")
    operator = add(remote.tokens, "boss", operator=True)
    async with remote.client(one) as mine, remote.client(two) as yours:
        sandbox = await mine.run_container(args(), key="shared-key")
        assert (await sandbox.run_shell("echo over tls")).text == "over tls\n"
        async with await sandbox.start(["cat"], stdin=True) as process:
            await process.write("in and out")
            await process.close_stdin()
            assert (await process.collect()).text == "in and out"
        assert await yours.list() == []
        with pytest.raises(errors.UnknownSandboxError):
            await yours.get(sandbox.id)
        async with await yours.run_container(args(), key="shared-key") as other:
            assert other.id != sandbox.id
        async with remote.client(operator) as boss, remote.edge.client() as local:
            for each in (boss, local):
                assert [info.id for info in await each.list()] == [sandbox.id]
            await (await boss.get(sandbox.id)).stop()


async def test_tasks_are_served_beside_those_of_another_and_each_sees_their_own(
    remote: Remote,
) -> None:
    tokens = [add(remote.tokens, name) for name in ("many", "few")]
    async with remote.client(tokens[0]) as many, remote.client(tokens[1]) as few:
        batch = aiter(many.run_fncalls(task("sleep 0.05") for _ in range(60)))
        await anext(batch)
        assert (await few.run_fncall(task("echo mine"))).text == "mine\n"
        assert len([result async for result in batch]) == 59
        assert {event.principal for event in await few.fncall_log()} == {"few"}
        assert len(await many.fncall_log()) == 60


async def test_a_token_that_is_taken_back_opens_nothing_any_more(remote: Remote) -> None:
    token = add(remote.tokens, "leaver")
    async with remote.client(token) as client:
        await client.health()
        lines = remote.tokens.read_text().splitlines(keepends=True)
        remote.tokens.write_text("".join(line for line in lines if "leaver" not in line))
        with pytest.raises(errors.UnauthorizedError):
            await client.health()


def test_tcp_without_tokens_is_no_start(remote: Remote) -> None:
    """Whether or not the home has another edge already: it fails before it looks."""
    edge = RealEdge(
        remote.edge.home,
        *("--listen", "127.0.0.1:0", "--tokens", "/nowhere/tokens"),
        *("--certificate", "/nowhere/c", "--key", "/nowhere/k"),
    )
    edge.log = remote.edge.log.with_name("other.log")
    edge._notices = remote.edge.home.parent / "other"
    with pytest.raises(AssertionError, match="tokens cannot be read"):
        edge.start()
