"""The lanes of all stores, and the one thread that watches their deadlines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dsec_layers.errors import StoreError
from dsec_layers.lazyfs.lane import Lane, LaneLimits, Then
from dsec_layers.model.blobs import BlobReader

OpenStore = Callable[[str], BlobReader]


class Lanes:
    """A lane for each URL, made when it is first asked for. Safe for many threads.

    `lock` guards all of them, and whoever queues something holds it.
    """

    def __init__(self, open_store: OpenStore, limits: LaneLimits | None = None) -> None:
        self.lock = threading.Lock()
        self._open = open_store
        self._limits = limits or LaneLimits()
        self._lanes: dict[str, Lane] = {}
        self._work = threading.Condition(self.lock)
        self._resting = False
        self._closed = False
        self._watcher: threading.Thread | None = None

    def lane(self, url: str) -> Lane:
        """The lane of the store at `url`; the lock is held."""
        lane = self._lanes.get(url)
        if lane is None:
            lane = self._lanes[url] = Lane(url, self._open, self.lock, self._limits)
        self._attend()
        return lane

    def listed(self) -> list[Lane]:
        """All lanes in the order of their URLs; the lock is held."""
        return [self._lanes[url] for url in sorted(self._lanes)]

    def halt(self) -> None:
        """Begin no further request; the lock is held."""
        self._closed = True
        self._work.notify_all()
        for lane in self._lanes.values():
            lane.close()

    def close(self) -> None:
        """End all threads after what they are doing; who still waits gets StoreError."""
        with self.lock:
            self.halt()
            lanes = self.listed()
        for lane in lanes:
            lane.join()
        if self._watcher is not None:
            self._watcher.join()
        for lane in lanes:
            with self.lock:
                items = lane.queue.clear()
            for item in items:
                item.refuse(StoreError("the daemon is stopping"))

    def _attend(self) -> None:
        """Somebody is about to ask: the watcher must not rest."""
        if self._watcher is None and not self._closed:
            self._watcher = threading.Thread(target=self._watch, name="deadlines", daemon=True)
            self._watcher.start()
        if self._resting:
            self._resting = False
            self._work.notify()

    def _watch(self) -> None:
        """A request that begins now is due after the next look, for looks are not far apart."""
        step_s = self._limits.deadline_s / 8
        while True:
            with self.lock:
                if self._closed:
                    return
                now = time.monotonic()
                moment, told = self._look(now)
                if not told:
                    self._resting = moment is None
                    self._work.wait(None if moment is None else max(0, min(step_s, moment - now)))
            for each in told:
                each()

    def _look(self, now: float) -> tuple[float | None, list[Then]]:
        moments: list[float] = []
        told: list[Then] = []
        for lane in self.listed():
            moment, more = lane.watch(now)
            told += more
            if moment is not None:
                moments.append(moment)
            elif lane.queue or lane.in_flight > lane.stuck:
                moments.append(now + self._limits.deadline_s)
        return min(moments, default=None), told
