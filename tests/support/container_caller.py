"""A process that runs one container, for tests that kill it or put it on a terminal.

Arguments: root, folder, runtime program, `tty` or `plain`, the words of the command.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dsec_layers.linux import container, runtime
from dsec_layers.linux.ocispec import Command


def main(root: str, folder: str, program: str, kind: str, *argv: str) -> int:
    working = [it for it in runtime.candidates() if runtime.attempt(it) is None]
    by = next(it for it in working if it.program == program)
    command = Command(rootfs=Path(root), argv=argv, tty=kind == "tty", stdin="inherited")
    try:
        return container.run(command, Path(folder), by=by).status
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
