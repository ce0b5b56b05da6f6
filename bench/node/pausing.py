"""A sandbox whose program holds 256 MiB is paused, resumed, and reads all of it again.

Pages alone: the same program outside of any sandbox, its pages written out and fetched ahead in the
same way, and read. What they hold is noise, so that nothing makes them smaller. Given back is by
how much the use of the sandbox's memory cgroup falls.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from pathlib import Path
from typing import Final

from bench.node.bare import Bare
from bench.node.counts import latency, told
from bench.node.swap import swap
from bench.report import Metric, ratio
from dsec_runtime.resources import layout, reclaim
from dsec_runtime.sdk import Process, Sandbox
from tests.support.edges import RealEdge, args

SHARE_GOAL, BACK_GOAL = 0.9, 1.2
HELD: Final = 256 << 20
RUNS: Final = 7
_HOLDER: Final = f"""
$| = 1;
open my $noise, "<", "/dev/urandom" or die;
my $held = "";
sysread $noise, $held, 1 << 20, length $held while length $held < {HELD};
print "ready\\n";
while (<STDIN>) {{
    my $sum = 0;
    for (my $at = 0; $at < {HELD}; $at += 4096) {{ $sum += ord substr $held, $at, 1 }}
    print "touched\\n";
}}
"""
_WORDS: Final = ["perl", "-e", _HOLDER]


async def measure(edge: RealEdge, _: Bare) -> dict[str, Metric]:
    """Ours and the pages alone, in turns."""
    with swap():
        async with (
            edge.client() as client,
            await client.run_container(args(memory_limit_mb=512)) as sandbox,
            await sandbox.start(_WORDS, stdin=True) as process,
        ):
            return await _measured(sandbox, _Lines(process))


async def _measured(sandbox: Sandbox, lines: _Lines) -> dict[str, Metric]:
    shares, pauses, resumes, ours, theirs = [], [], [], [], []
    await lines.expect("ready")
    outside = _Outside()
    try:
        for _ in range(RUNS):
            share, seconds = await _pause(sandbox)
            shares.append(share)
            pauses.append(seconds)
            start = time.perf_counter()
            await sandbox.resume()
            resumes.append(time.perf_counter() - start)
            await lines.write("touch\n")
            await lines.expect("touched")
            ours.append(time.perf_counter() - start)
            theirs.append(await asyncio.to_thread(outside.out_and_back))
    finally:
        outside.end()
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "pause_given_back": Metric(statistics.median(shares), SHARE_GOAL, "higher", shares),
        "resume_vs_pages_alone": Metric(ratio(ours, theirs), BACK_GOAL, "lower", pairs),
        **latency("pause", pauses),
        **latency("resume", resumes),
        "resumed_and_touched_ms": told(statistics.median(ours) * 1000),
        "pages_alone_ms": told(statistics.median(theirs) * 1000),
    }


async def _pause(sandbox: Sandbox) -> tuple[float, float]:
    """The share of its memory that it gave back, and how long that took."""
    groups = layout.groups(layout.find())
    before = groups.usage(sandbox.id).memory_bytes
    if before < HELD:
        raise RuntimeError(f"the sandbox uses {before} bytes")
    start = time.perf_counter()
    await sandbox.pause()
    seconds = time.perf_counter() - start
    return 1 - groups.usage(sandbox.id).memory_bytes / before, seconds


class _Lines:
    """A process, line by line."""

    def __init__(self, process: Process) -> None:
        self.write = process.write
        self._pieces = aiter(process)
        self._rest = b""

    async def expect(self, line: str) -> None:
        """Read a line, which must be this."""
        while b"\n" not in self._rest:
            self._rest += (await anext(self._pieces)).data
        found, _, self._rest = self._rest.partition(b"\n")
        if found != line.encode():
            raise RuntimeError(f"the program wrote {found!r}")


class _Outside:
    """The program on the machine itself."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            _WORDS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._expect(b"ready\n")

    def out_and_back(self) -> float:
        """Write its pages out; the seconds until they are all back and were read."""
        pids = (self._process.pid,)
        reclaim.page_out(pids)
        if (resident := self._resident()) > HELD // 10:
            raise RuntimeError(f"{resident} bytes of the program outside stay in memory")
        assert self._process.stdin is not None
        start = time.perf_counter()
        reclaim.fetch_ahead(pids)
        self._process.stdin.write(b"touch\n")
        self._expect(b"touched\n")
        return time.perf_counter() - start

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _expect(self, line: bytes) -> None:
        assert self._process.stdout is not None
        found = self._process.stdout.readline()
        if found != line:
            raise RuntimeError(f"the program outside wrote {found!r}")

    def _resident(self) -> int:
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096
