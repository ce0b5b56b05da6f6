"""A directory store does what a dictionary does, in any order of operations."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dsec_layers.errors import ConflictError, NotFoundError
from dsec_layers.model.manifest import OCI_MANIFEST, PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.directory import DirectoryStore
from tests.support.profiles import fewer

CONTENTS = st.integers(0, 5).map(lambda number: b"content %d" % number)
TYPES = st.sampled_from([PACK_TYPE, OCI_MANIFEST])
REFERENCES = st.builds(
    Reference,
    st.sampled_from(Kind),
    st.sampled_from(["a", "a/b", "a-b", "a.b/c", "a/b/c"]),
    st.sampled_from(["latest", "v1", "b", "json", "_.json", "lock"]),
)


def key(blob: Descriptor) -> tuple[str, str]:
    return blob.media_type, blob.digest


class Machine(RuleBasedStateMachine):
    """The store beside its model: contents by descriptor, descriptors by reference."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dsec-test-"))
        self.store = DirectoryStore.open(self.folder / "store", create=True)
        self.contents: dict[tuple[str, str], bytes] = {}
        self.names: dict[Reference, Descriptor] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(data=CONTENTS, media_type=TYPES)
    def put(self, data: bytes, media_type: str) -> None:
        blob = Descriptor.of(data, media_type)
        assert self.store.put(blob, iter([data])) == (key(blob) not in self.contents)
        self.contents[key(blob)] = data

    @rule(data=CONTENTS, media_type=TYPES)
    def delete(self, data: bytes, media_type: str) -> None:
        blob = Descriptor.of(data, media_type)
        self.store.delete(blob)
        self.contents.pop(key(blob), None)

    @rule(data=CONTENTS, media_type=TYPES)
    def read(self, data: bytes, media_type: str) -> None:
        blob = Descriptor.of(data, media_type)
        if key(blob) in self.contents:
            assert self.store.read(blob) == data
        else:
            with pytest.raises(NotFoundError):
                self.store.read(blob)

    @rule(reference=REFERENCES, data=CONTENTS)
    def tag(self, reference: Reference, data: bytes) -> None:
        target = Descriptor.of(data, OCI_MANIFEST)
        if key(target) not in self.contents:
            with pytest.raises(NotFoundError):
                self.store.tag(reference, target)
        else:
            self.store.tag(reference, target)
            self.names[reference] = target

    @rule(reference=REFERENCES, data=CONTENTS, guard=st.none() | CONTENTS)
    def compare_and_swap(self, reference: Reference, data: bytes, guard: bytes | None) -> None:
        target = Descriptor.of(data, OCI_MANIFEST)
        self.store.put(target, data)
        self.contents[key(target)] = data
        expected = Descriptor.of(guard, OCI_MANIFEST) if guard is not None else None
        if self.names.get(reference) == expected:
            self.store.tag(reference, target, expected=expected)
            self.names[reference] = target
        else:
            with pytest.raises(ConflictError):
                self.store.tag(reference, target, expected=expected)

    @rule(reference=REFERENCES)
    def untag(self, reference: Reference) -> None:
        if self.names.pop(reference, None):
            self.store.untag(reference)
        else:
            with pytest.raises(NotFoundError):
                self.store.untag(reference)

    @rule(reference=REFERENCES)
    def resolve(self, reference: Reference) -> None:
        if target := self.names.get(reference):
            assert self.store.resolve(reference) == target
        else:
            with pytest.raises(NotFoundError):
                self.store.resolve(reference)

    @invariant()
    def lists_are_those_of_the_model(self) -> None:
        if hasattr(self, "store"):
            assert list(self.store.tags()) == sorted(self.names.items(), key=lambda item: item[0])
            listed = sorted(blob.digest for blob in self.store.blobs())
            assert listed == sorted(digest for _, digest in self.contents)


TestMachine = Machine.TestCase
TestMachine.settings = settings(fewer, stateful_step_count=25)
