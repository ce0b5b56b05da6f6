"""/etc/hosts of a sandbox whose environment has none: images leave it to who runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dsec_layers.linux import inroot
from dsec_runtime.resources.views import View

_PATH: Final = "/etc/hosts"


def hosts(folder: Path, root: Path, hostname: str) -> list[View]:
    """What to show there, a file in `folder`; nothing where `root` has one that knows localhost."""
    if b"localhost" in (inroot.read_file(root, _PATH) or b""):
        return []
    file = folder / "hosts"
    file.write_text(
        f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t{hostname}\n"
    )
    return [View(file, inroot.resolve(root, _PATH))]
