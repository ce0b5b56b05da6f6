"""Actors that take turns: which goes on is chosen at each of their steps, and any may be killed.

An actor is a function in a thread of its own that calls `Turn.step` before all that others may see.
Only one is ever running, so a sequence of choices gives the same run each time. An actor that
sleeps goes on when all others that live have made a step since: machines differ in speed, but none
stands still while others wait for minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


class Killed(BaseException):
    """Ends an actor wherever it stands; nobody hears of it."""


@dataclass
class Turn:
    """One actor: `step` hands the turn back to the scheduler and waits for the next."""

    name: str
    work: Callable[[Turn], None]
    done: bool = False
    killed: bool = False
    sleeping_until: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    error: BaseException | None = None
    _mine: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def step(self, _what: str = "") -> None:
        """A point where others may go on."""
        if self.killed:
            raise Killed
        self._back.release()
        self._mine.acquire()
        self.steps += 1
        if self.killed:
            raise Killed

    def begin(self) -> None:
        """Run to the first step."""
        threading.Thread(target=self._run, daemon=True).start()
        self._back.acquire()

    def go_on(self) -> None:
        """Run to the next step, or to the end."""
        self._mine.release()
        self._back.acquire()

    def _run(self) -> None:
        try:
            self.work(self)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self._back.release()


class Stage:
    """Runs actors to their ends. `choose(n)` gives a number below n; the lowest is 'as before'."""

    def __init__(self, choose: Callable[[int], int], check: Callable[[], None]) -> None:
        self._choose = choose
        self._check = check
        self.turns: list[Turn] = []
        self.now = 0.0

    def sleep(self, turn: Turn, amount: float) -> None:
        """Let time pass for one actor; called by itself."""
        others = [other for other in self.turns if other is not turn and not other.done]
        turn.sleeping_until = {other.name: other.steps for other in others}
        turn.step("sleep")
        turn.sleeping_until = {}
        self.now += amount if any(not other.done for other in others) else 100 * amount

    def run(
        self, works: dict[str, Callable[[Turn], None]], *, kill: tuple[str, int] = ("", 0)
    ) -> None:
        """Run all actors; `kill` ends one before its n-th step. `check` is called at each step."""
        self.turns = [Turn(name, work) for name, work in works.items()]
        for turn in self.turns:
            turn.begin()
        current: Turn | None = None
        while ready := [turn for turn in self.turns if not turn.done and self._awake(turn)]:
            if current in ready:
                ready.sort(key=lambda turn: turn is not current)
            current = ready[self._choose(len(ready)) if len(ready) > 1 else 0]
            if (current.name, current.steps) == kill:
                current.killed = True
            current.go_on()
            self.now += 1
            self._check()

    def _awake(self, turn: Turn) -> bool:
        others = {other.name: other for other in self.turns if not other.done}
        return all(
            name not in others or others[name].steps > steps or others[name].sleeping_until
            for name, steps in turn.sleeping_until.items()
        )
