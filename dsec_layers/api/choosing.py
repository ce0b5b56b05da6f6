"""Environments that a user means: by reference, or by a pattern over the tags of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference

_WILD: Final = frozenset("*?[")


class Chosen(NamedTuple):
    """An environment; `target` is what its tag named when the tags were listed.

    That is None for one that was `named` itself, which is looked up later and may not be there.
    """

    reference: Reference
    target: Descriptor | None
    named: bool


def environments(store: Store, given: Sequence[str]) -> Iterator[Chosen]:
    """Each environment once. In a pattern `*` stands for any characters, `/` and `:` too.

    Raises InvalidInputError for what is no environment, NotFoundError for a pattern that matches
    none, CorruptError or StoreError.
    """
    seen: set[Reference] = set()
    tags: list[tuple[Reference, Descriptor]] | None = None
    for text in given:
        if _WILD.isdisjoint(text):
            found = [Chosen(_environment(text), None, True)]
        else:
            tags = list(store.tags(Kind.ENV)) if tags is None else tags
            found = [Chosen(each, at, False) for each, at in tags if fnmatchcase(str(each), text)]
            if not found:
                raise NotFoundError(
                    f"no environment of {store.url} matches {text!r}",
                    hint="a pattern is compared with whole references, as in 'env/swe/*'",
                )
        for each in found:
            if each.reference not in seen:
                seen.add(each.reference)
                yield each


def _environment(text: str) -> Reference:
    reference = Reference.parse(text)
    if reference.kind is not Kind.ENV:
        raise InvalidInputError(f"{reference} is not an environment", hint="write --in env/...")
    return reference
