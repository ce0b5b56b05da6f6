"""Network namespaces made ahead, so that a sandbox need not wait for its own.

A namespace is used once: no proof that one is clean is as good as a new one, which takes 3 ms of
CPU, before anybody waits for it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

from dsec_runtime.errors import OverloadedError
from dsec_runtime.linux import namespaces
from dsec_runtime.linux.namespaces import Endings
from dsec_runtime.network import links
from dsec_runtime.network.router import Router
from dsec_runtime.network.ruleset import Member

_log = logging.getLogger(__name__)


class Pool:
    """The namespaces of a router's sandboxes; thread-safe."""

    def __init__(self, router: Router, ready: int) -> None:
        """Keeps `ready` of them made ahead, once `start` was called."""
        self._router, self._wanted = router, ready
        self._numbers = self._round()
        self._taken: set[int] = set()
        self._ready: list[int] = []
        self._endings = Endings()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._refill, name="dsec-networks", daemon=True)

    def start(self) -> None:
        """Begin to make some ahead."""
        self._thread.start()

    def path(self, slot: int) -> Path:
        """Where a namespace is kept."""
        return self._router.folder / str(slot)

    def member(self, slot: int) -> Member:
        """How the packet filter knows it."""
        return Member(links.interface(slot), self._router.addresses.address(slot))

    def is_whole(self, slot: int) -> bool:
        """Whether a namespace of an earlier process can be used."""
        return slot in self._router.addresses.slots and namespaces.is_kept(self.path(slot))

    def adopt(self, slot: int) -> None:
        """Count a namespace of an earlier process as taken."""
        self._taken.add(slot)

    def take(self) -> int:
        """One that nobody has had. Raises OverloadedError when all addresses are in use."""
        with self._changed:
            slot = self._ready.pop() if self._ready else None
            self._changed.notify_all()
        return self._make() if slot is None else slot

    def discard(self, slot: int) -> None:
        """Let one end with its last process; no error when it is gone.

        The kernel removes its link then, which takes a while; until that, too, nothing passes.
        """
        self._endings.forget(self.path(slot))
        with self._changed:
            self._taken.discard(slot)

    def sweep(self) -> None:
        """Discard what killed processes left: all that was not adopted."""
        kept = {int(it.name) for it in self._router.folder.iterdir() if it.name.isdigit()}
        for slot in kept | self._router.inside.run(links.sandbox_slots):
            if slot not in self._taken:
                links.remove_sandbox(slot, self._router.netlink)
                self.discard(slot)

    def close(self) -> None:
        """Discard those that nobody has taken, and make no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for slot in self._ready:
            self.discard(slot)
        self._ready.clear()
        self._endings.close()

    def _refill(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._ready) < self._wanted)
                if self._closed:
                    return
            try:
                slot = self._make()
            except Exception:
                # Whoever asks gets the error; until then there is no reason to try again.
                _log.exception("no network namespace could be made ahead")
                with self._changed:
                    self._changed.wait()
                continue
            with self._changed:
                self._ready.append(slot)

    def _make(self) -> int:
        slot, router = self._number(), self._router
        try:
            namespaces.in_new_network(
                self.path(slot),
                lambda: links.prepare_sandbox(slot, router.path, router.netlink, router.addresses),
            )
        except BaseException:
            links.remove_sandbox(slot, router.netlink)
            self.discard(slot)
            raise
        return slot

    def _number(self) -> int:
        """The number used longest ago, so that an address does not soon mean another sandbox."""
        with self._changed:
            for _ in self._router.addresses.slots:
                slot = next(self._numbers)
                if slot not in self._taken:
                    self._taken.add(slot)
                    return slot
        raise OverloadedError("all addresses of sandboxes are in use on this node")

    def _round(self) -> Iterator[int]:
        slots = self._router.addresses.slots
        begin = secrets.choice(slots)  # after a restart, too, another place than before
        while True:
            yield from range(begin, slots.stop)
            yield from range(slots.start, begin)
