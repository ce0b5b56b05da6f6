"""`python -m dsec_layers.lazyfs.successor HOME MODULE`: sees to it that a daemon is back.

The holder starts it when the daemon has died, so that reads which wait under live mounts need
nobody to come by.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from dsec_layers.errors import DsecError
from dsec_layers.lazyfs.client import DaemonClient

_OOM_SCORE = Path("/proc/self/oom_score_adj")


def main(home: str, module: str) -> None:
    """Start a daemon for `home` when one is missed."""
    with contextlib.suppress(OSError):
        _OOM_SCORE.write_text("0")  # the holder's own is better than a daemon's should be
    try:
        DaemonClient(Path(home), module=module).succeed()
    except (DsecError, OSError) as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main(*sys.argv[1:])
