"""The registry of the tests: docker-registry on a free port of the loopback interface."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_port
from tests.support.tars import archive, member

_PATIENCE_S = 60.0

_CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {data}}}
  delete: {{enabled: {delete}}}
http: {{addr: "127.0.0.1:{port}"}}
{more}
"""


@dataclass(frozen=True)
class Registry:
    """A running registry: its address, its configuration and where it keeps everything."""

    address: str
    config: Path
    data: Path

    def url(self, prefix: str = "team/layers") -> str:
        """A store in it."""
        return f"oci+http://{self.address}/{prefix}"

    def collect(self, *options: str) -> None:
        """Run its own garbage collection."""
        command = ["docker-registry", "garbage-collect", *options, str(self.config)]
        subprocess.run(command, check=True, capture_output=True)

    def stored_bytes(self) -> int:
        """What all blobs take, each of which the registry keeps once."""
        return sum(path.stat().st_size for path in self.data.rglob("blobs/*/*/*/data"))


@contextlib.contextmanager
def running(folder: Path, *, delete: bool = True, more: str = "") -> Iterator[Registry]:
    """A registry until the context ends. `more` is further configuration in YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config, data = folder / "config.yml", folder / "data"
    allowed = str(delete).lower()
    config.write_text(_CONFIG.format(data=data, delete=allowed, port=port, more=more))
    with server(["docker-registry", "serve", str(config)], port, folder / "log"):
        yield Registry(f"127.0.0.1:{port}", config, data)


@contextlib.contextmanager
def server(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A program that answers on `port`, until the context ends."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as child:
        try:
            _await(port, child, log)
            yield
        finally:
            child.terminate()
            child.wait(_PATIENCE_S)


def _await(port: int, child: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up:
        assert child.poll() is None, log.read_text()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/")
            connection.getresponse().read()
            return
        time.sleep(0.05)
    raise AssertionError(f"no answer on port {port}: {log.read_text()}")


def trust(home: Path, *addresses: str, more: str = "") -> None:
    """Let a home speak plain HTTP to these registries."""
    home.mkdir(exist_ok=True)
    sections = [f'[registry."{address}"]\nplain_http = true\n' for address in addresses]
    (home / "registries.toml").write_text("".join(sections) + more)


def layers(count: int = 3) -> list[bytes]:
    """Small layers of an image, with a file each."""
    return [archive([member(f"f{number}", data=b"%d" % number * 3000)]) for number in range(count)]
