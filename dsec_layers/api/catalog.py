"""The names in a store: listed, searched, resolved, set and removed.

A `store` is the local one (`Workbench.local`) or any that `registry.urls.open_store` opens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

import msgspec

from dsec_layers.api.rows import LayerRow, any_row
from dsec_layers.errors import DsecError, InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.blobs import Store
from dsec_layers.model.digest import Digest
from dsec_layers.model.environment import REFERENCE_KEY
from dsec_layers.model.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import closure, leases, tagging
from dsec_layers.registry import layers as stored

Order = Literal["name", "time", "size"]
_WORKERS: Final = 16


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A tag and what it names, or the `problem` that keeps it from being read.

    `tagged` is when the tag was set and `builder` who made what it names, as far as the store knows
    it. `complete` says whether all its data is in the store, not only its metadata.
    """

    reference: str
    digest: str
    tagged: str = ""
    builder: str = ""
    complete: bool = False
    layer: LayerRow | None = None
    labels: dict[str, str] = {}
    problem: str | None = None


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What a reference stands for now; `pinned` goes on meaning that."""

    reference: str
    digest: str
    pinned: str
    tagged: str
    builder: str


def listing(
    store: Store, kind: Kind | None = None, name: str | None = None, order: Order = "name"
) -> list[Listed]:
    """The tags of a store, of one kind, or of one name of it; of `cache` only when asked for.

    By name, versions in their natural order (v9 before v10), or the latest or largest first. A
    damaged layer is listed with its problem. Raises CorruptError for a damaged tag, StoreError.
    """
    with ThreadPoolExecutor(_WORKERS, "list") as pool:
        tags = store.tags(kind, name)
        shown = (pair for pair in tags if kind or pair[0].kind is not Kind.CACHE)
        rows = list(pool.map(lambda pair: _listed(store, *pair), shown))
    rows.sort(key=lambda row: natural(row.reference))
    if order == "time":
        rows.sort(key=lambda row: row.tagged, reverse=True)
    elif order == "size":
        rows.sort(key=lambda row: row.layer.stored_bytes if row.layer else 0, reverse=True)
    return rows


def search(store: Store, words: Sequence[str], order: Order = "name") -> list[Listed]:
    """The tags that have all `words` in their reference, or in their labels; case is ignored."""
    wanted = [word.lower() for word in words]
    return [
        row
        for row in listing(store, order=order)
        if all(any(word in text for text in _texts(row)) for word in wanted)
    ]


def resolve(stores: Iterable[Store], reference: Reference) -> Resolved:
    """What `reference` stands for in the first of `stores` that has it. Nothing is fetched.

    A tag with a digest must still point to that digest. Raises NotFoundError or StoreError.
    """
    missing = NotFoundError(f"there is no {reference}: no store to look in")
    for store in stores:
        try:
            found = store.tagged(reference)
        except NotFoundError as error:
            missing = error
            continue
        tagged, builder = _notes(found)
        return Resolved(
            reference=str(reference),
            digest=found.digest,
            pinned=str(reference.pinned(found.parsed_digest)),
            tagged=tagged,
            builder=builder,
        )
    raise missing


def tag(
    store: Store,
    source: Reference,
    name: Reference,
    *,
    if_absent: bool = False,
    expect: str | None = None,
) -> Resolved:
    """Let `name` point to what `source` stands for in the same store.

    Only if there is no such tag yet, or it points to the digest `expect`, where one of these is
    asked for: else ConflictError. Raises InvalidInputError for a name of another kind or with a
    digest, and NotFoundError when the store lacks any part of it but packs.
    """
    if name.digest is not None:
        raise InvalidInputError(f"{name} names a digest", hint=f"write {name.repository}:TAG")
    if source.kind is not name.kind:
        raise InvalidInputError(f"{source} is of kind {source.kind.value}, {name} is not")
    found = store.tagged(source)
    target = msgspec.structs.replace(found, annotations={})
    with leases.hold(store, purpose="tag") as held:
        held.add(closure.blobs(store, target))
        _check_kind(store, name, target)
        expected = _expected(if_absent=if_absent, expect=expect)
        builder = found.annotations.get(tagging.BUILDER_KEY, "")
        tagging.set_tag(store, name, target, expected=expected, builder=builder)
    return resolve([store], name)


def untag(store: Store, references: Sequence[Reference]) -> None:
    """Remove tags; layers stay. Raises NotFoundError or InvalidInputError before any is removed."""
    for reference in references:
        if not reference.tag:
            raise InvalidInputError(f"{reference} has no tag", hint="only tags are removed")
        store.resolve(reference)
    for reference in references:
        tagging.remove_tag(store, reference)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which `v9` comes before `v10`."""
    parts = re.split(r"([0-9]+)", text)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)


def repository(text: str) -> tuple[Kind, str]:
    """Kind and name of `kind/name`, without a tag. Raises InvalidInputError."""
    reference = Reference.parse(text)
    if reference.digest is not None or text != reference.repository:
        raise InvalidInputError(
            f"{text!r} names a version", hint=f"write {reference.repository}, without a tag"
        )
    return reference.kind, reference.name


def _listed(store: Store, reference: Reference, descriptor: Descriptor) -> Listed:
    tagged, builder = _notes(descriptor)
    bare = Listed(
        reference=str(reference), digest=descriptor.digest, tagged=tagged, builder=builder
    )
    try:
        layers = _layers(store, descriptor)
        return msgspec.structs.replace(
            bare,
            complete=all(store.has(pack) for layer in layers for pack in layer.manifest.packs),
            layer=any_row(str(reference), descriptor, layers),
            labels={key: text for layer in layers for key, text in layer.config.run.labels.items()},
        )
    except DsecError as error:  # one damaged layer must not hide all others
        return msgspec.structs.replace(bare, problem=error.message)


def _notes(descriptor: Descriptor) -> tuple[str, str]:
    """When it was tagged and who made it."""
    notes = descriptor.annotations
    return notes.get(tagging.TIME_KEY, ""), notes.get(tagging.BUILDER_KEY, "")


def _layers(store: Store, descriptor: Descriptor) -> tuple[MountLayer, ...]:
    return tuple(
        MountLayer(
            layer,
            (found := stored.load_layer(store, layer)).manifest,
            found.config,
            store,
            reference=layer.annotations.get(REFERENCE_KEY, ""),
        )
        for layer in stored.layer_descriptors(store, descriptor)
    )


def _texts(row: Listed) -> Iterator[str]:
    yield row.reference.lower()
    for key, text in row.labels.items():
        yield f"{key}={text}".lower()


def _check_kind(store: Store, name: Reference, target: Descriptor) -> None:
    """All metadata is there, now that nobody removes it, and of the kind of the name."""
    layers = _layers(store, target)
    for layer in layers:
        for blob in (layer.manifest.table, layer.manifest.metadata):
            if not store.has(blob):
                raise NotFoundError(f"{blob.digest} of {layer} is not in {store.url}")
    if target.media_type != OCI_INDEX and layers[0].config.kind is not name.kind:
        raise InvalidInputError(f"{layers[0]} is not of kind {name.kind.value}")


def _expected(*, if_absent: bool, expect: str | None) -> Descriptor | bool | None:
    if if_absent:
        return None
    return Descriptor(OCI_MANIFEST, str(Digest.parse(expect)), 0) if expect else False
