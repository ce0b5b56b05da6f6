"""Compile the agent: `python -m dsec_runtime.guest.build`, and the build hook of the package.

The binary carries the digest of its sources, so that a stale one is told from a fresh one without
running it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from dsec_layers.linux import process

FOLDER: Final = Path(__file__).parent
BINARY: Final = FOLDER / "dsec-agent"

_FLAGS: Final = (
    *("-std=c11", "-D_GNU_SOURCE", "-static", "-Os", "-Wall", "-Wextra", "-Werror"),
    *("-ffunction-sections", "-fdata-sections", "-fstack-protector-strong", "-Wl,--gc-sections,-s"),
)


def sources() -> list[Path]:
    """All C files of the agent, sorted by name."""
    return sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")])


def mark() -> bytes:
    """What a binary made of the sources as they are now has in it."""
    digest = hashlib.sha256()
    for path in sources():
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)}\n".encode() + text)
    return b"dsec-agent of sources " + digest.hexdigest().encode()


def build() -> Path:
    """Compile the binary and put it in place whole.

    Raises CapabilityMissingError without a compiler ($CC, else gcc) and DsecError with the
    compiler's last words when it fails.
    """
    aside = BINARY.with_name(f".{BINARY.name}.{os.getpid()}")
    files = [path for path in sources() if path.suffix == ".c"]
    define = f'-DSOURCES="{mark().decode()}"'
    try:
        process.run([os.environ.get("CC", "gcc"), *_FLAGS, define, *files, "-o", aside])
        aside.chmod(0o755)
        aside.replace(BINARY)
    finally:
        aside.unlink(missing_ok=True)
    return BINARY


if __name__ == "__main__":
    print(build())
