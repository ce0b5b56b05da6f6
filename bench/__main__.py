"""Run benchmarks by name; each is a module of this package with a function `main() -> Report`."""

from __future__ import annotations

import argparse
import importlib
import sys

from bench.report import Report

NAMES = (
    "build",
    "burst",
    "dedupe",
    "gc",
    "import_image",
    "lazy_start",
    "lazyfs",
    "node",
    "pack",
    "read",
    "trace",
    "transfer",
    "upgrade",
)
_CHOICE = f"one or more of {', '.join(NAMES)}, or all"


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line names; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*NAMES, "all"], metavar="NAME", help=_CHOICE)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    options = parser.parse_args(arguments)
    met = True
    for name in NAMES if "all" in options.names else options.names:
        report: Report = importlib.import_module(f"bench.{name}").main()
        if not options.json:
            print(report.table())
        print(report.json(), flush=True)
        met = met and report.met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
