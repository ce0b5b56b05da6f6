"""The layers of sandboxes, mounted once a node, however many sandboxes stand on them.

    HOME/run/environments/<holder>    what is held under this name: digests, folders, how to run

Each set of layers is held in the journal of `dsec_layers` under a name made of their digests. A
sandbox's link to that name is its claim: it is made before the layers are used and goes with the
sandbox, so what nobody claims is released after a crash. Sets that nobody uses stay mounted for a
while, so that the next sandbox finds them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.api import holding
from dsec_layers.api.holding import HeldLayers
from dsec_layers.api.parentimages import ParentImages
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.spec import Environment
from dsec_runtime.tiers.container.places import Places, Sandbox

_OURS: Final = "containers-"  # of holders: others may hold layers too


class _Note(msgspec.Struct, frozen=True):
    digests: tuple[str, ...]
    folders: tuple[str, ...]
    run: RunConfig


class _Set(msgspec.Struct):
    """`lock` is held while it is mounted or released; `held` is None unless it is mounted."""

    lock: threading.Lock
    users: set[str]
    held: HeldLayers | None = None


class Environments:
    """Holds layers for the sandboxes below `places`; `warm` sets without a user are kept.

    Safe for many threads.
    """

    def __init__(self, bench: Workbench, places: Places, *, warm: int) -> None:
        self._bench = bench
        self._warm = warm
        self._notes = places.environments
        self._notes.mkdir(exist_ok=True)
        self._lock = threading.Lock()
        self._importing = threading.Lock()
        self._sets: OrderedDict[str, _Set] = OrderedDict()  # the one used last at the end
        self._recover(places)

    def acquire(self, sandbox: Sandbox, environment: Environment) -> HeldLayers:
        """The layers that `environment` means now, mounted until `release`.

        Raises InvalidRequestError and what `holding.hold` raises.
        """
        pinned = holding.pinned(self._bench, self._references(environment))
        holder = f"{_OURS}{holding.holder_of(pinned)}"
        found = self._claim(sandbox, holder)
        with found.lock:
            if found.held is None or not _stand(found.held):
                found.held = holding.hold(self._bench, pinned, holder)
                self._write(found.held)
            return found.held

    def pinned(self, environment: Environment) -> Environment:
        """The same environment, of which every name is bound to what it means now.

        Raises what `acquire` raises.
        """
        found = holding.pinned(self._bench, self._references(environment))
        return Environment(layers=tuple(str(reference) for reference in found))

    def share(self, source: Sandbox, sandbox: Sandbox) -> HeldLayers:
        """The layers of `source` for another sandbox too. Raises NotFoundError."""
        found = self._claim(sandbox, str(source.layers.readlink()))
        if found.held is None:
            raise NotFoundError(f"the layers of {source.id} are not mounted any more")
        return found.held

    def release(self, sandbox: Sandbox) -> None:
        """Undo `acquire`; nothing happens when the sandbox has none. Raises DaemonError."""
        with self._lock:
            for it in self._sets.values():
                it.users.discard(sandbox.id)
        sandbox.layers.unlink(missing_ok=True)
        self._trim(self._warm)

    def users(self) -> int:
        """How many sandboxes have layers."""
        with self._lock:
            return sum(len(it.users) for it in self._sets.values())

    def close(self) -> None:
        """Release what nobody uses."""
        self._trim(0)

    def _references(self, environment: Environment) -> Sequence[Reference]:
        given = [environment.reference, environment.image, environment.layers or None]
        if sum(it is not None for it in given) != 1:
            raise InvalidRequestError(
                "environment: give exactly one of reference, layers and image"
            )
        if environment.image is not None:
            with self._importing:  # the second who asks for an image finds it
                return [ParentImages(self._bench).base(ImageName.parse(environment.image))]
        if environment.reference is not None:
            return [Reference.parse(environment.reference)]
        return [Reference.parse(text) for text in environment.layers]

    def _claim(self, sandbox: Sandbox, holder: str) -> _Set:
        with self._lock:
            sandbox.layers.symlink_to(holder)
            found = self._set(holder)
            found.users.add(sandbox.id)
            self._sets.move_to_end(holder)
        return found

    def _set(self, holder: str) -> _Set:
        if holder not in self._sets:
            self._sets[holder] = _Set(threading.Lock(), set())
        return self._sets[holder]

    def _trim(self, warm: int) -> None:
        """Release those that were used longest ago of the sets without a user, but for `warm`."""
        with self._lock:
            idle = [holder for holder, it in self._sets.items() if not it.users]
            gone = [(holder, self._sets[holder]) for holder in idle[: max(0, len(idle) - warm)]]
        for holder, it in gone:
            with it.lock:
                with self._lock:
                    if it.users or holder not in self._sets:
                        continue
                    it.held = None
                holding.release(self._bench, holder)
                (self._notes / holder).unlink(missing_ok=True)
                with self._lock:
                    if not it.users:
                        self._sets.pop(holder, None)

    def _write(self, held: HeldLayers) -> None:
        note = _Note(held.digests, tuple(map(str, held.folders)), held.run)
        (self._notes / held.holder).write_bytes(msgspec.json.encode(note))

    def _recover(self, places: Places) -> None:
        """Know again what another process has held, and release what was not finished."""
        for sandbox in places.all():
            with contextlib.suppress(FileNotFoundError):
                self._set(str(sandbox.layers.readlink())).users.add(sandbox.id)
        holders = {it for it in holding.holders(self._bench) if it.startswith(_OURS)}
        for path in self._notes.iterdir():
            if path.name in holders and (held := _read(path)) is not None:
                self._set(path.name).held = held
            else:
                path.unlink()
        for holder in holders - self._sets.keys():
            holding.release(self._bench, holder)


def _stand(held: HeldLayers) -> bool:
    """Whether the layers are still mounted: somebody may have stopped the daemon by force."""
    above = held.folders[0].parent.stat().st_dev
    try:
        return all(folder.stat().st_dev != above for folder in held.folders)
    except OSError:
        return False


def _read(path: Path) -> HeldLayers | None:
    try:
        note = msgspec.json.decode(path.read_bytes(), type=_Note)
    except msgspec.DecodeError:  # cut short
        return None
    return HeldLayers(path.name, note.digests, tuple(map(Path, note.folders)), note.run)
