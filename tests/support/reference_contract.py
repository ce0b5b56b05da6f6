"""What every store must do with references and attachments; see `store_contract`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from dsec_layers.errors import ConflictError, NotFoundError, StoreError
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.blobs import Store
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.attachments import attachments, publish
from tests.support.stores import put_environment, put_layer

BASE = Reference.parse("base/debian:12")


class ReferenceContract:
    """The part of `StoreContract` that is about names."""

    guards = True
    collected = True

    @pytest.fixture
    def layer(self, store: Store) -> Descriptor:
        """A whole small layer, tagged."""
        return put_layer(store, BASE, [b"pack one", b"pack two"])

    def test_a_tag(self, store: Store, layer: Descriptor) -> None:
        assert store.resolve(BASE) == layer
        assert store.resolve(BASE.pinned(layer.parsed_digest)) == layer
        with pytest.raises(NotFoundError):
            store.resolve(BASE.pinned(Digest.sha256(b"other")))
        for absent in ("base/debian:13", "base/debian/12:12", "workspace/debian:12"):
            with pytest.raises(NotFoundError):
                store.resolve(Reference.parse(absent))

    def test_a_digest_alone(self, store: Store, layer: Descriptor) -> None:
        environment = put_environment(
            store, Reference.parse("env/demo:1"), [(Kind.BASE, "debian", layer)]
        )
        for kind, name, target in ((Kind.BASE, "debian", layer), (Kind.ENV, "demo", environment)):
            assert store.resolve(Reference(kind, name, "", target.parsed_digest)) == target
        with pytest.raises(NotFoundError):
            store.resolve(Reference(Kind.BASE, "debian", "", Digest.sha256(b"other")))

    def test_a_tag_moves(self, store: Store, layer: Descriptor) -> None:
        other = put_layer(store, Reference.parse("base/debian:next"), [b"pack three"])
        store.tag(BASE, other)
        assert store.resolve(BASE) == other
        store.untag(BASE)
        with pytest.raises(NotFoundError):
            store.resolve(BASE)
        with pytest.raises(NotFoundError):
            store.untag(BASE)
        assert store.resolve(Reference.parse("base/debian:next")) == other

    def test_what_is_not_there_cannot_be_tagged(self, store: Store) -> None:
        absent = Descriptor.of(b"{}", OCI_MANIFEST)
        with pytest.raises(NotFoundError):
            store.tag(BASE, absent)
        with pytest.raises(NotFoundError):
            store.resolve(BASE)

    def test_compare_and_swap(self, store: Store, layer: Descriptor) -> None:
        other = put_layer(store, Reference.parse("base/debian:next"), [b"pack three"])
        fresh = Reference.parse("base/debian:fresh")
        if not self.guards:
            with pytest.raises(StoreError, match=r"compare|guard|swap"):
                store.tag(fresh, layer, expected=None)
            with pytest.raises(NotFoundError):
                store.resolve(fresh)
            return
        store.tag(fresh, layer, expected=None)
        for wrong in (None, other):
            with pytest.raises(ConflictError):
                store.tag(fresh, other, expected=wrong)
        assert store.resolve(fresh) == layer
        store.tag(fresh, other, expected=layer)
        assert store.resolve(fresh) == other
        with pytest.raises(ConflictError):
            store.tag(Reference.parse("base/debian:absent"), layer, expected=layer)

    def test_of_many_who_swap_one_wins(self, store: Store, layer: Descriptor) -> None:
        if not self.guards:
            pytest.skip("this store refuses to compare")
        rivals = [
            put_layer(store, Reference.parse(f"base/rival:{number}"), [b"%d" % number])
            for number in range(6)
        ]
        fresh = Reference.parse("base/debian:fresh")
        expected: Descriptor | None
        for expected in (None, layer):
            if expected:
                store.tag(fresh, layer)

            def swap(rival: Descriptor, expected: Descriptor | None = expected) -> bool:
                try:
                    store.tag(fresh, rival, expected=expected)
                except ConflictError:
                    return False
                return True

            with ThreadPoolExecutor(len(rivals)) as pool:
                won = list(pool.map(swap, rivals))
            assert sum(won) == 1
            assert store.resolve(fresh) == rivals[won.index(True)]

    def test_tags_are_listed_in_order(self, store: Store) -> None:
        names = ["base/b:2", "base/b:10", "base/a/c:1", "base/a:1", "toolkit/t:x", "workspace/w:1"]
        references = [Reference.parse(name) for name in names]
        targets = {each: put_layer(store, each, [str(each).encode()]) for each in references}
        listed = [(each, target.digest) for each, target in store.tags()]
        assert listed == [(each, targets[each].digest) for each in sorted(references)]
        assert [str(each) for each, _ in store.tags(Kind.BASE)] == [
            *("base/a:1", "base/a/c:1", "base/b:10", "base/b:2")
        ]
        assert [str(each) for each, _ in store.tags(Kind.BASE, "a")] == ["base/a:1"]
        assert [str(each) for each, _ in store.tags(name="a/c")] == ["base/a/c:1"]
        assert list(store.tags(Kind.ENV)) == list(store.tags(Kind.BASE, "none")) == []

    def test_annotations_stay_with_the_tag(self, store: Store, layer: Descriptor) -> None:
        noted = msgspec.structs.replace(layer, annotations={"when": "today"})
        store.tag(BASE, noted)
        assert store.resolve(BASE) == layer
        if self.collected:
            assert store.tagged(BASE) == noted
            assert list(store.tags()) == [(BASE, noted)]
        if self.guards:
            store.tag(BASE, layer, expected=noted)
            store.tag(BASE, noted, expected=layer)

    def test_long_names(self, store: Store, layer: Descriptor) -> None:
        name = Reference.parse(f"base/{'n' * 100}/{'m' * 100}:{'T' * 128}")
        store.tag(name, layer)
        assert store.resolve(name) == layer

    def test_attachments(self, store: Store, layer: Descriptor) -> None:
        assert list(store.referrers(layer)) == []
        attached = [
            publish(store, Attachment("application/vnd.dsec.test.v1", layer, (blob,)), data)
            for data in (b"one", b"two")
            for blob in (Descriptor.of(data, "text/plain"),)
        ]
        expected = sorted(each.digest for each in attached)
        assert [each.digest for each in store.referrers(layer)] == expected
        assert [each.digest for each, _ in attachments(store, layer)] == expected
        store.attach(layer, attached[0])  # again
        store.detach(layer, attached[1])
        store.detach(layer, attached[1])
        assert [each.digest for each in store.referrers(layer)] == [attached[0].digest]
        assert [str(each) for each, _ in store.tags()] == [str(BASE)]
        with pytest.raises(NotFoundError):
            store.attach(layer, Descriptor.of(b"absent", OCI_MANIFEST))
