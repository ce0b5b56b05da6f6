"""Where else than in the common repository blobs have been seen."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

_MOST: Final = 100_000


class Places:
    """The repository in which a digest was last named. Bounded; safe for many threads."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[str, str] = OrderedDict()

    def learn(self, repository: str, digests: Iterable[str]) -> None:
        """A document in `repository` names these."""
        with self._lock:
            for digest in digests:
                self._known[digest] = repository
                self._known.move_to_end(digest)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def find(self, digest: str) -> str | None:
        """A repository that may have the blob."""
        with self._lock:
            return self._known.get(digest)
