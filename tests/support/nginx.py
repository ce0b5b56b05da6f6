"""nginx before a server of the tests, on a free port of the loopback interface."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support import oci_registry
from tests.support.ports import free_port

_CONFIG = """\
daemon off; master_process off; pid {folder}/pid; error_log stderr error;
events {{}}
http {{
    access_log off; client_max_body_size 0;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{
        listen 127.0.0.1:{port} {how};
        {server}
    }}
}}
"""


@contextlib.contextmanager
def running(folder: Path, server: str, *, how: str = "") -> Iterator[str]:
    """The address of nginx until the context ends.

    `server` is what its only server does, `how` what follows the port that it listens on.
    """
    folder.mkdir(exist_ok=True)
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, port=port, server=server, how=how))
    with oci_registry.server(["nginx", "-c", str(config)], port, folder / "log"):
        yield f"127.0.0.1:{port}"
