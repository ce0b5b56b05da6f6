"""Run a command and write down the most memory it held.

python -m tests.support.peak FILE COMMAND...

A process between the test and the command, because the kernel counts to a child what its parent
held before the child became a program of its own; this parent is small.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    file, *words = sys.argv[1:]
    pid = os.posix_spawnp(words[0], words, os.environ)
    _, status, usage = os.wait4(pid, 0)
    Path(file).write_text(str(usage.ru_maxrss * 1024))
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
