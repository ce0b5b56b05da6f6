"""`python -m dsec_layers.rootless ...`: the process that serves a rootless mount.

It is started by `api.rootless`, to which it answers once, in one line: it is ready, or why not.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from pathlib import Path

from dsec_layers.api.rootlessserver import Wanted, serve
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import DsecError
from dsec_layers.lazyfs import protocol
from dsec_layers.lazyfs.logs import log_to
from dsec_layers.lazyfs.rootlessmounts import RootlessMounts
from dsec_layers.linux import detached
from dsec_layers.model.reference import Reference


def main() -> None:
    """Serve one mount; SIGTERM unmounts it."""
    parser = argparse.ArgumentParser(description="the server of a rootless mount")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--store", action="append", default=[])
    parser.add_argument("--ready-fd", type=int, required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--made-target", action="store_true")
    parser.add_argument("reference", type=Reference.parse)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    detached.leave_parent()
    log_to(RootlessMounts(given.home / "run").log)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wanted = Wanted(given.id, given.reference, given.name, given.target, given.made_target)
    said = False

    def ready(_: object) -> None:
        nonlocal said
        said = True
        if not detached.say(given.ready_fd, detached.READY):  # nobody wants it any more
            stop.set()

    try:
        serve(Workbench(given.home, given.store), wanted, stop, ready)
    except (DsecError, OSError) as error:
        if said:
            raise
        detached.say(given.ready_fd, protocol.encode_answer(error))
        raise SystemExit(1) from None
    logging.shutdown()
    os._exit(0)  # without waiting for threads that are at a store


if __name__ == "__main__":
    main()
