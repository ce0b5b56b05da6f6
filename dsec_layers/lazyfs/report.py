"""What a verification found: one check for each part, all failures collected."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import msgspec

from dsec_layers.errors import CorruptError, NotFoundError, StoreError

_SHOWN_PROBLEMS = 8  # a damaged pack may break thousands of files; the first ones tell


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part that was checked.

    `problems` are empty when it is right. `repaired`: it was wrong when it was looked at, and has
    been put right.
    """

    part: str
    size_bytes: int
    seconds: float
    problems: tuple[str, ...] = ()
    repaired: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems


class Report(msgspec.Struct, frozen=True):
    """All checks of a layer or environment, in the order in which they were made."""

    subject: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check found nothing."""
        return all(check.ok for check in self.checks)

    def raise_for_problems(self) -> None:
        """Raise CorruptError naming every damaged part, if there is one."""
        bad = [check for check in self.checks if not check.ok]
        if bad:
            parts = "; ".join(
                f"{check.part}: {', '.join(check.problems)}{' (repaired)' * check.repaired}"
                for check in bad
            )
            raise CorruptError(
                f"{self.subject} is damaged: {parts}", hint=None if _repaired(bad) else _HINT
            )


_HINT = "push or pull the layer again from a store that has it whole; `rm` the damaged copy first"


def _repaired(checks: list[Check]) -> bool:
    return all(check.repaired for check in checks)


class Findings:
    """What one check has found so far."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.repaired = False
        self._problems: list[str] = []
        self._count = 0

    def problem(self, text: str) -> None:
        """Note that something is wrong; after the first ones only their number is kept."""
        self._count += 1
        if len(self._problems) < _SHOWN_PROBLEMS:
            self._problems.append(text)

    @property
    def problems(self) -> tuple[str, ...]:
        """The first problems, and how many more there are."""
        more = self._count - len(self._problems)
        return (*self._problems, f"and {more} more") if more else tuple(self._problems)


class Recorder:
    """Collects checks."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self._prefix = ""

    @contextlib.contextmanager
    def prefixed(self, subject: str) -> Iterator[None]:
        """Checks made meanwhile are parts of `subject`."""
        self._prefix = f"{subject}: "
        yield
        self._prefix = ""

    @contextlib.contextmanager
    def check(self, part: str) -> Iterator[Findings]:
        """Make one check. Missing, corrupt and unreadable data are problems of it, not errors."""
        findings, start = Findings(), time.monotonic()
        try:
            yield findings
        except (CorruptError, NotFoundError, StoreError) as error:
            findings.problem(error.message)
        except OSError as error:
            findings.problem(str(error))
        seconds = round(time.monotonic() - start, 3)
        self.add(Check(part, findings.size_bytes, seconds, findings.problems, findings.repaired))

    def add(self, check: Check) -> None:
        """Take over a check that was made elsewhere."""
        self.checks.append(msgspec.structs.replace(check, part=self._prefix + check.part))
