"""One store's own queue, threads and breaker: what happens in it holds up nobody else.

A thread that is stuck in a store cannot be killed. When its request is overdue whoever waits is
told so, and the thread counts as a part of this store's share until it returns. An overdue request
is a failure of the store; a late answer is a sign of life.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from dsec_layers.errors import DsecError, StoreError
from dsec_layers.lazyfs.breaker import Breaker, BreakerLimits, State
from dsec_layers.lazyfs.fairqueue import FairQueue
from dsec_layers.lazyfs.figures import StoreFigures
from dsec_layers.lazyfs.job import Job, Waiting, probing
from dsec_layers.lazyfs.retries import Retries
from dsec_layers.model.blobs import BlobReader

_ABSENT_S: Final = 5.0
_MOST_ABSENT: Final = 4096
_log = logging.getLogger(__name__)
Then = Callable[[], None]  # what is to be done once the lock is free


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """`threads` are those of one store. They begin no request while `most_bytes` are under way.

    A request is overdue after `deadline_s` and the time that its bytes take at `least_bytes_per_s`,
    all its attempts together.
    """

    threads: int = 24
    most_bytes: int = 24 << 20
    deadline_s: float = 30.0
    least_bytes_per_s: int = 256 << 10
    retries: Retries = field(default_factory=Retries)
    breaker: BreakerLimits = field(default_factory=BreakerLimits)


@dataclass(slots=True, eq=False)
class _Request:
    job: Job[Any]
    began: float
    due: float
    probe: bool
    held_bytes: int
    overdue: bool = False


class Lane:
    """The way to one store; it is opened when it is first asked. `lock` is that of all lanes."""

    def __init__(
        self,
        url: str,
        open_store: Callable[[str], BlobReader],
        lock: threading.Lock,
        limits: LaneLimits,
    ) -> None:
        self.url = url
        self.queue: FairQueue[Hashable, Hashable, Waiting] = FairQueue()
        self.breaker = Breaker(limits.breaker)
        self.figures = StoreFigures()
        self._open = open_store
        self._store: BlobReader | None = None
        self._lock = lock
        self._wanted = threading.Condition(lock)
        self._limits = limits
        self._running: set[_Request] = set()
        self._held_bytes = 0
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._absent: dict[str, float] = {}
        self._sample: Callable[[BlobReader], object] | None = None
        self._pause = threading.Event()  # never set: a wait that no signal handler cuts short
        self._closed = False
        self._logged = State.CLOSED

    # The lock is held by who calls these.

    @property
    def in_flight(self) -> int:
        """Requests that are being made, those overdue among them."""
        return len(self._running)

    @property
    def stuck(self) -> int:
        """Threads whose request is overdue."""
        return sum(request.overdue for request in self._running)

    def lacks(self, digest: str) -> bool:
        """Whether the store has just said that it does not have this blob."""
        return time.monotonic() < self._absent.get(digest, 0.0)

    def note_absent(self, digest: str) -> None:
        """Remember for a moment that it does not have this blob."""
        if len(self._absent) >= _MOST_ABSENT:
            self._absent.clear()
        self._absent[digest] = time.monotonic() + _ABSENT_S

    def push(
        self, owner: Hashable, key: Hashable, item: Waiting, *, urgent: bool = True
    ) -> StoreError | None:
        """Queue an item, or say why not: then nothing has happened.

        When the lane is closed it waits on: the process ends, and a successor is asked again.
        """
        if not self.breaker.passes:
            self.figures.refused += 1
            return self._unavailable()
        self.queue.push(owner, key, item, urgent=urgent)
        self.wake()
        return None

    def wake(self) -> None:
        """See to it that a thread looks at queue and breaker."""
        self._wanted.notify()
        if self._idle == 0 and len(self._threads) < self._limits.threads and not self._closed:
            thread = threading.Thread(target=self._work, name=f"store {self.url}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def watch(self, now: float) -> tuple[float | None, list[Then]]:
        """Give up what is overdue; when to look again, and what is to be told."""
        told: list[Then] = []
        for request in [each for each in self._running if not each.overdue and each.due <= now]:
            request.overdue = True
            self._let_go(request)
            if self.queue:
                self.wake()
            self.figures.errors["timeout"] += 1
            self.breaker.failed(now)
            told.append(_telling(request.job.failed, self._overdue(now - request.began)))
        if self.stuck >= self._limits.threads:
            self.breaker.give_up(now)
        told += [*self._flushed(), *self._turned()]
        due = self.breaker.due
        if due is not None and due <= now:
            self.wake()  # for the probe, if there is a thread left to make it
            due = now + self._limits.breaker.first_pause_s
        moments = [each.due for each in self._running if not each.overdue]
        return min(moments if due is None else [*moments, due], default=None), told

    def close(self) -> None:
        """Begin no further request."""
        self._closed = True
        self._wanted.notify_all()

    # These take the lock themselves.

    def join(self) -> None:
        """Wait for the threads that are not stuck."""
        for thread in self._threads:
            while thread.is_alive() and not self.stuck:
                thread.join(0.05)

    def _work(self) -> None:
        while self._make(self._next()):
            pass

    def _make(self, request: _Request | None) -> bool:
        """Make one request; a thread that rests must not hold what its last one brought."""
        if request is None:
            return False
        try:
            answer = self._patiently(request)
        except Exception as error:
            self._unanswered(request, error)
        else:
            self._answered(request, answer)
        with self._lock:
            self._let_go(request)
        return True

    def _next(self) -> _Request | None:
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                if self._sample is not None and self.breaker.probe(now):
                    return self._begin(probing(self._sample), now, probe=True)
                room = self._held_bytes < self._limits.most_bytes
                if room and self.queue and self.breaker.passes:
                    job = self.queue.pop().board()
                    if self.queue:
                        self.wake()
                    return self._begin(job, now, probe=False)
                self._idle += 1
                self._wanted.wait()
                self._idle -= 1
        return None

    def _begin(self, job: Job[Any], now: float, *, probe: bool) -> _Request:
        limits = self._limits
        due = now + limits.deadline_s + job.length / limits.least_bytes_per_s
        request = _Request(job, now, due, probe, job.length)
        if self._sample is None:
            self._sample = job.probe
        self._running.add(request)
        self._held_bytes += job.length
        return request

    def _let_go(self, request: _Request) -> None:
        """What it has brought is no longer held, or not waited for."""
        self._held_bytes -= request.held_bytes
        request.held_bytes = 0

    def _patiently(self, request: _Request) -> object:
        job = request.job
        delays = iter(()) if request.probe else self._limits.retries.delays()
        while True:
            job.counters.add(store_requests=1)
            try:
                return job.ask(self._opened())
            except (StoreError, OSError) as error:
                delay = next(delays, None)
                if delay is None or request.overdue or not self.breaker.passes:
                    raise StoreError(f"store {self.url} keeps failing: {error}") from error
            job.counters.add(retries=1)
            self._pause.wait(delay)

    def _opened(self) -> BlobReader:
        if self._store is None:
            self._store = self._open(self.url)
        return self._store

    def _answered(self, request: _Request, answer: Any) -> None:
        job = request.job
        with self._lock:
            self._running.discard(request)
            self.figures.requests += 1
            if request.overdue:
                self.breaker.sign_of_life(time.monotonic())
                return
            self.breaker.succeeded()
            self._sample = self._sample if request.probe else job.probe
            self.figures.answered_bytes += job.length
            told = self._turned()
        for each in told:
            each()
        self.figures.seconds.observe(time.monotonic() - request.began)
        try:
            job.answered(answer)
        except Exception as error:  # whatever it is, somebody waits for an answer
            _log.exception("an answer of store %s is lost", self.url)
            job.failed(StoreError(f"fetching failed: {error}"))

    def _unanswered(self, request: _Request, error: Exception) -> None:
        if not isinstance(error, DsecError):
            _log.exception("fetching failed in an unforeseen way", exc_info=error)
            error = StoreError(f"fetching failed: {error}")
        now = time.monotonic()
        with self._lock:
            self._running.discard(request)
            self.figures.requests += 1
            self.figures.errors[type(error).__name__] += 1
            if request.overdue:
                return
            if isinstance(error, StoreError):
                self.breaker.failed(now)
            else:
                self.breaker.succeeded()  # it has answered, if not what one would like to hear
            told = [*self._flushed(), *self._turned()]
        self.figures.seconds.observe(now - request.began)
        for each in [_telling(request.job.failed, error), *told]:
            each()

    def _flushed(self) -> list[Then]:
        """Empty the queue of a store that is not to be asked."""
        if self.breaker.passes or not self.queue:
            return []
        items = self.queue.clear()
        self.figures.refused += len(items)
        return [_telling(item.refuse, self._unavailable()) for item in items]

    def _turned(self) -> list[Then]:
        """Log that the store is in trouble, or is back; a probe that fails is nothing new."""
        state = self.breaker.state
        if state in (self._logged, State.HALF_OPEN):
            return []
        self._logged = state
        if state is State.OPEN:
            return [lambda: _log.warning("store %s is in trouble and left alone", self.url)]
        return [lambda: _log.info("store %s answers again", self.url)]

    def _unavailable(self) -> StoreError:
        return StoreError(f"store {self.url} is unavailable, and is tried again in a while")

    def _overdue(self, seconds: float) -> StoreError:
        return StoreError(f"store {self.url} has not answered for {seconds:.0f} s")


def _telling(listener: Callable[[Any], None], error: DsecError) -> Then:
    return lambda: listener(error)
