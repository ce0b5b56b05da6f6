"""Run commands for `bench.node.bare`, in the mount namespace that it made.

A line of JSON on standard input is the words of a command; the answer is a line with its status
and the seconds from its start to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        words = json.loads(line)
        start = time.perf_counter()
        status = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ).returncode
        print(json.dumps([status, time.perf_counter() - start]), flush=True)


if __name__ == "__main__":
    main()
