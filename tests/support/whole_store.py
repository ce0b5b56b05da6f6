"""A whole store in memory: blobs, tags, attachments and notes, each call one atomic step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dsec_layers.errors import ConflictError, NotFoundError
from dsec_layers.model.collecting import Note
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.naming import GENERIC_TYPE, manifest_at
from tests.support.memory_store import MemoryStore


@dataclass
class WholeStore:
    """Implements `Collectable`. `step` is called before each call with its name.

    `clock` is the time of the store. Types are forgotten but for packs, as a directory does it.
    """

    clock: Callable[[], float] = lambda: 0.0
    step: Callable[[str], None] = lambda _: None
    url: str = "memory:///"
    held: MemoryStore = field(default_factory=MemoryStore)
    times: dict[str, float] = field(default_factory=dict)
    packs: set[str] = field(default_factory=set)
    tagged_: dict[Reference, Descriptor] = field(default_factory=dict)
    noted: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    attached: dict[str, dict[str, Descriptor]] = field(default_factory=dict)

    def has(self, blob: Descriptor) -> bool:
        self.step("has")
        return self.held.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        self.step("read")
        return self.held.read(blob, offset, length)

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        self.step("stream")
        return self.held.stream(blob)

    def put(
        self, blob: Descriptor, source: Path | bytes | Iterator[bytes], *, consume: bool = False
    ) -> bool:
        self.step("put")
        written = self.held.put(blob, source, consume=consume)
        self.times[blob.digest] = self.clock()
        if blob.media_type == PACK_TYPE:
            self.packs.add(blob.digest)
        return written

    def delete(self, blob: Descriptor) -> None:
        self.step("delete")
        self.held.blobs.pop(blob.digest, None)

    def blobs(self) -> Iterator[Descriptor]:
        self.step("blobs")
        for digest, data in list(self.held.blobs.items()):
            media_type = PACK_TYPE if digest in self.packs else GENERIC_TYPE
            yield Descriptor(media_type, digest, len(data))

    def resolve(self, reference: Reference) -> Descriptor:
        return msgspec.structs.replace(self.tagged(reference), annotations={})

    def tagged(self, reference: Reference) -> Descriptor:
        self.step("resolve")
        if reference.digest and not reference.tag:
            data = self.held.blobs.get(str(reference.digest))
            if data is None:
                raise NotFoundError(f"no blob {reference.digest}")
            return manifest_at(reference, len(data))
        try:
            found = self.tagged_[Reference(reference.kind, reference.name, reference.tag)]
        except KeyError:
            raise NotFoundError(f"no tag {reference}") from None
        if reference.digest and str(reference.digest) != found.digest:
            raise NotFoundError(f"{reference} is now {found.digest}")
        return found

    def tag(
        self,
        reference: Reference,
        target: Descriptor,
        *,
        expected: Descriptor | bool | None = False,
    ) -> None:
        self.step("tag")
        if not self.held.has(target):
            raise NotFoundError(f"cannot tag {reference}: {target.digest} is not here")
        stands = self.tagged_.get(reference)
        wanted = expected.digest if isinstance(expected, Descriptor) else None
        if not isinstance(expected, bool) and wanted != (stands.digest if stands else None):
            raise ConflictError(f"{reference} has changed")
        self.tagged_[reference] = target

    def untag(self, reference: Reference) -> None:
        self.step("untag")
        if self.tagged_.pop(reference, None) is None:
            raise NotFoundError(f"no tag {reference}")

    def tags(
        self, kind: Kind | None = None, name: str | None = None
    ) -> Iterator[tuple[Reference, Descriptor]]:
        self.step("tags")
        for reference, target in sorted(self.tagged_.items()):
            if kind in (None, reference.kind) and name in (None, reference.name):
                yield reference, target

    def referrers(self, subject: Descriptor) -> Iterator[Descriptor]:
        self.step("referrers")
        return iter(list(self.attached.get(subject.digest, {}).values()))

    def attach(self, subject: Descriptor, referrer: Descriptor) -> None:
        self.step("attach")
        self.attached.setdefault(subject.digest, {})[referrer.digest] = referrer

    def detach(self, subject: Descriptor, referrer: Descriptor) -> None:
        self.step("detach")
        self.attached.get(subject.digest, {}).pop(referrer.digest, None)

    def renewed(self, blob: Descriptor) -> float:
        self.step("renewed")
        if not self.held.has(blob):
            raise NotFoundError(f"no blob {blob.digest}")
        return self.times[blob.digest]

    def renew(self, blob: Descriptor) -> None:
        self.step("renew")
        if not self.held.has(blob):
            raise NotFoundError(f"no blob {blob.digest}")
        self.times[blob.digest] = self.clock()

    def notes(self, folder: str) -> Iterator[Note]:
        self.step("notes")
        found = [Note(name, time) for name, (_, time) in self.noted.items()]
        return iter([note for note in found if note.name.startswith(folder + "/")])

    def read_note(self, name: str) -> bytes:
        self.step("read_note")
        try:
            return self.noted[name][0]
        except KeyError:
            raise NotFoundError(f"no note {name}") from None

    def write_note(self, name: str, data: bytes, *, sync: bool = True) -> None:
        self.step("write_note")
        self.noted[name] = data, self.clock()

    def remove_note(self, name: str) -> None:
        self.step("remove_note")
        self.noted.pop(name, None)

    def remove_stale(self, older_than_s: float) -> int:
        self.step("remove_stale")
        return 0
