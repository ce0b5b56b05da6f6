"""A build in a process of its own, which prints the output of its commands.

    python -m tests.support.build_process LAYERFILE CONTEXT HOME BASE [JOBS]

SIGTERM is an interrupt here, as the command line makes it one.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from dsec_layers.builder.build import build
from dsec_layers.builder.events import BuildEvent, StepOutput
from dsec_layers.builder.request import BuildRequest
from tests.support.builds import FolderLayer, FolderLayers


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    layerfile, context, home, base = map(Path, sys.argv[1:5])
    jobs = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    request = BuildRequest(layerfile=layerfile, context=context, home=home, jobs=jobs)
    with build(request, FolderLayers({"base/small": FolderLayer(base)}), _tell):
        pass


def _tell(event: BuildEvent) -> None:
    if isinstance(event, StepOutput):
        print(event.data.decode(), end="", flush=True)


if __name__ == "__main__":
    main()
