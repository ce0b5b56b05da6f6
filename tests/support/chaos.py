"""Everything that may happen to a lazy file system, at random, while readers check every byte."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dsec_layers.errors import DsecError
from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.linux import detached
from tests.support import chaos_daemon
from tests.support.damage import flip_bit

# How long after a store was mended a read may still fail: an overdue request, and the breaker.
GRACE_S = chaos_daemon.DEADLINE_S + 1.25 * chaos_daemon.BREAKER.most_pause_s + 2
# No read may take longer, whatever happens meanwhile.
DEADLINE_S = 45.0


@dataclass
class Fleet:
    """Reader processes; one that SIGBUS ended is replaced, and what it read counts."""

    plain: Path
    roots: list[Path]
    folder: Path
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    failures: list[tuple[float, float, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _running: list[tuple[str, Path, subprocess.Popen[bytes]]] = field(default_factory=list)

    def start(self, kind: str) -> None:
        number = self.counts["readers"]
        self.counts["readers"] += 1
        output = self.folder / f"reader-{number}"
        command = [sys.executable, "-m", "tests.support.chaos_reader", kind]
        with output.open("wb") as out:
            process = subprocess.Popen(
                [*command, f"{self.seed}-{number}", str(self.plain), *map(str, self.roots)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
            )
        self._running.append((kind, output, process))

    def look_after(self) -> None:
        """Take note of readers that have ended, and start others."""
        for each in [each for each in self._running if each[2].poll() is not None]:
            self._running.remove(each)
            self._collect(*each)
            self.start(each[0])

    def stop(self) -> None:
        """End all, and take note of what they saw."""
        for each in self._running:
            assert each[2].stdin is not None
            each[2].stdin.close()
        for kind, output, process in self._running:
            try:
                process.wait(2 * DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.wrong.append(f"a {kind} reader hangs")
                process.kill()
                process.wait()
            self._collect(kind, output, process)
        self._running.clear()

    def _collect(self, kind: str, output: Path, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.close()
        began, sums = time.monotonic(), ["0", "0", "0"]
        for line in output.read_text().splitlines():
            word, *rest = line.split(maxsplit=3)
            if word == "read":
                began = float(rest[0])
            elif word == "sum":
                sums = rest
            elif word == "eio":
                self.counts["EIO"] += 1
                self.failures.append((float(rest[0]), float(rest[1]), rest[2]))
            else:
                self.wrong.append(line)
        output.unlink()
        self.counts["reads"] += int(sums[0])
        self.counts["bytes"] += int(sums[1])
        self.slowest_s = max(self.slowest_s, float(sums[2]))
        if process.returncode == -signal.SIGBUS:
            self.counts["SIGBUS"] += 1
            self.failures.append((began, time.monotonic(), "mapped"))
        elif process.returncode != 0:
            self.wrong.append(f"a {kind} reader ended with status {process.returncode}")


@dataclass
class Chaos:
    """Does one random thing after the other to stores, daemon and cache.

    `trouble` is when a store was failing; `cache` is a small file system of its own.
    """

    client: DaemonClient
    manager: RootfsManager
    layers: list[MountLayer]
    stores: list[Path]
    cache: Path
    spare: Path
    choose: random.Random
    say: Callable[[str], None]
    did: Counter[str] = field(default_factory=Counter)
    trouble: list[tuple[float, float]] = field(default_factory=list)
    _moods: dict[Path, tuple[str, float]] = field(default_factory=dict)

    def run(self, seconds: float, fleet: Fleet, *, deaths: bool = True) -> None:
        """Go on for so long; with `deaths` the daemon is killed and replaced every few seconds."""
        end = time.monotonic() + seconds
        events = [self._mood, self._mood, self._spoil_cache, self._fill_cache, self._remount]
        next_death = time.monotonic() + 2
        while time.monotonic() < end:
            if deaths and time.monotonic() >= next_death:
                self._death()
                next_death = time.monotonic() + self.choose.uniform(1, 5)
            else:
                self.choose.choice(events)()
            fleet.look_after()
            time.sleep(self.choose.uniform(0.1, 0.8))
        self.calm()

    def calm(self) -> None:
        """Everything works again; returns when a reader may rely on it."""
        for store in self.stores:
            self._set(store, "")
        self._filler.unlink(missing_ok=True)
        time.sleep(GRACE_S)
        self.client.ensure()

    def excused(self, began: float, ended: float) -> bool:
        """Whether a store was failing during a read, or just before it."""
        return any(start <= ended and began <= end + GRACE_S for start, end in self.trouble)

    @property
    def _filler(self) -> Path:
        return self.cache / "filler"

    def _note(self, what: str) -> None:
        self.did[what] += 1
        self.say(f"{time.monotonic():.3f} {what}")

    def _set(self, store: Path, mood: str, share: float = 1.0) -> None:
        before, since = self._moods.get(store, ("", 0.0))
        now = time.monotonic()
        self._moods[store] = (mood, now)
        chaos_daemon.set_mood(store, mood, share)
        if before in chaos_daemon.FAILING:
            self.trouble.append((since, time.monotonic()))

    def _mood(self) -> None:
        """A store falls ill; about every other time all of them work again."""
        if any(mood for mood, _ in self._moods.values()) and self.choose.random() < 0.6:
            for store in self.stores:
                self._set(store, "")
            self._note("mended")
            time.sleep(self.choose.uniform(0, 1))
            return
        mood = self.choose.choice(chaos_daemon.MOODS)
        share = self.choose.choice((0.1, 0.5, 1.0))
        for store in self.choose.choice(([self.stores[0]], [self.stores[1]], self.stores)):
            self._set(store, mood, share)
        self._note(f"store {mood}")

    def _death(self) -> None:
        if self.choose.random() < 0.2:
            self.client.restart()
            self._note("restart")
            return
        pid = self.client.ensure().status().pid
        os.kill(pid, signal.SIGKILL)
        assert detached.wait_for_exit(pid, 30)
        self._note("kill")

    def _spoil_cache(self) -> None:
        """Damage, shorten or remove a few cached chunks."""
        chunks = sorted(self.cache.glob("??/*"))
        how = self.choose.choice(("flipped", "shortened", "removed"))
        for path in self.choose.sample(chunks, min(len(chunks), 10)):
            with contextlib.suppress(FileNotFoundError):  # the daemon evicts meanwhile
                if how == "flipped":
                    flip_bit(path, self.choose.randrange(8 * path.stat().st_size))
                elif how == "shortened":
                    os.truncate(path, self.choose.randrange(path.stat().st_size))
                else:
                    path.unlink()
                self.did[f"chunk {how}"] += 1

    def _fill_cache(self) -> None:
        if self._filler.exists():
            self._filler.unlink()
            return
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(64 << 10))
        self._note("disk full")

    def _remount(self) -> None:
        """Mount once more, elsewhere; in vain while a store fails or the daemon comes and goes."""
        order = self.choose.sample(self.layers, len(self.layers))
        try:
            with self.manager.mounted(order, self.spare) as rootfs:
                (rootfs.target / "written").write_bytes(b"x")
            self._note("mount")
        except DsecError as error:
            self._note(f"mount refused: {type(error).__name__}")


def descriptors(pid: int) -> list[str]:
    """What a process has open; of sockets and pipes only that they are."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(link).partition(":[")[0])
    return sorted(found)


def processes_of(home: Path) -> Iterator[tuple[int, str]]:
    """The processes that have `home` on their command line."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                if os.fsencode(home) in line:
                    yield int(folder.name), line.decode(errors="replace")
