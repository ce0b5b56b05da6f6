"""What each layer of an environment costs, and what of it is hidden by higher ones.

Wasted are the bytes of files that a layer holds and nobody sees: replaced, removed, or below
something else in a higher layer. They are read from metadata, and nothing is mounted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.opened import Given, OpenedLayer, composition, opened, raw, text
from dsec_layers.api.workbench import Workbench
from dsec_layers.model import merge
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import Entry, EntryKind, Tree


class LayerCost(msgspec.Struct, frozen=True, kw_only=True):
    """A layer. `added`, `changed` and `removed` count paths, against the layers below.

    `size_bytes` sums its files, one with several names once; `wasted_bytes` of it are hidden.
    `stored_bytes` is what its packs take, which it may share with other layers.
    """

    layer: str
    digest: str
    added: int
    changed: int
    removed: int
    size_bytes: int
    wasted_bytes: int
    stored_bytes: int


class Wasted(msgspec.Struct, frozen=True, kw_only=True):
    """A path with hidden files: how many layers hold one nobody sees, and their bytes."""

    path: str
    copies: int
    bytes: int


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A path that is seen, with the size of all below it.

    `layer` is the number of the layer, 0 the lowest, that gives it; for a directory the one that
    gives most of its bytes, then its own.
    """

    path: str
    depth: int
    is_directory: bool
    size_bytes: int
    layer: int


class Dive(msgspec.Struct, frozen=True, kw_only=True):
    """The layers, lowest first; the tree in path order; the paths that waste most.

    `efficiency` is the share of all bytes of files that is seen, in parts of a thousand.
    """

    layers: tuple[LayerCost, ...]
    size_bytes: int
    wasted_bytes: int
    efficiency: int
    wasted: tuple[Wasted, ...]
    tree: tuple[Node, ...]


def dive(
    bench: Workbench, reference: Reference, path: str = "/", *, depth: int = 1, worst: int = 10
) -> Dive:
    """Weigh the layers of `reference`, the tree at and below `path`, `depth` names deep.

    Links in `path` are followed. Of the wasting paths the `worst` are told. Raises NotFoundError,
    CorruptError or StoreError.
    """
    with opened(bench, bench.stack(reference).layers) as layers:
        top = contents.find([layer.image for layer in layers], raw(path))[1].path
        trees = [layer.tree for layer in layers]
        shown = composition(trees)
        weights = [_weigh(number, tree, shown) for number, tree in enumerate(trees)]
        costs = tuple(map(_cost, layers, _changes(trees), weights))
    total, waste = sum(cost.size_bytes for cost in costs), sum(cost.wasted_bytes for cost in costs)
    return Dive(
        layers=costs,
        size_bytes=total,
        wasted_bytes=waste,
        efficiency=(total - waste) * 1000 // total if total else 1000,
        wasted=tuple(_worst(weights)[:worst]),
        tree=tuple(_nodes(shown, weights, top, depth)),
    )


class _Weights(NamedTuple):
    """The files of a layer, those that are seen and the others, and their sizes.

    A file with several names has its size at the first of them that is seen, else at the first.
    """

    seen: Mapping[bytes, int]
    hidden: Mapping[bytes, int]


def _weigh(number: int, tree: Tree, shown: Mapping[bytes, Given]) -> _Weights:
    seen: dict[bytes, int] = {}
    hidden: dict[bytes, int] = {}
    groups: defaultdict[int, list[Entry]] = defaultdict(list)
    for at, entry in enumerate(tree):
        if entry.kind is EntryKind.FILE:
            groups[entry.link_group or -1 - at].append(entry)
    for names in groups.values():
        visible = [each.path for each in names if _gives(number, each.path, shown)]
        if visible:
            seen |= dict.fromkeys(visible, 0) | {visible[0]: names[0].size}
        else:
            hidden[names[0].path] = names[0].size
    return _Weights(seen, hidden)


def _gives(number: int, path: bytes, shown: Mapping[bytes, Given]) -> bool:
    return path in shown and shown[path].layer == number


class _Change(NamedTuple):
    added: int
    changed: int
    removed: int


def _changes(trees: Sequence[Tree]) -> Iterator[_Change]:
    """What each layer does to those below it. A directory in both is no change of its own."""
    whole: Mapping[bytes, Entry] = {}
    for tree in trees:
        lower, whole = whole, merge.apply(Tree.of(whole.values()), tree).by_path()
        added = sum(path not in lower for path in whole)
        changed = sum(
            entry.path in lower
            for entry in tree
            if entry.kind not in (EntryKind.WHITEOUT, EntryKind.DIRECTORY)
        )
        yield _Change(added, changed, sum(path not in whole for path in lower))


def _cost(opened_layer: OpenedLayer, change: _Change, weights: _Weights) -> LayerCost:
    layer = opened_layer.layer
    hidden = sum(weights.hidden.values())
    return LayerCost(
        layer=str(layer),
        digest=opened_layer.digest,
        added=change.added,
        changed=change.changed,
        removed=change.removed,
        size_bytes=sum(weights.seen.values()) + hidden,
        wasted_bytes=hidden,
        stored_bytes=sum(pack.size for pack in layer.manifest.packs),
    )


def _worst(weights: Sequence[_Weights]) -> list[Wasted]:
    """The paths that waste, the worst first, then in the order of paths."""
    sums: Counter[bytes] = Counter()
    copies: Counter[bytes] = Counter()
    for each in weights:
        sums.update(each.hidden)
        copies.update(each.hidden.keys())
    ordered = sorted((path for path in sums if sums[path]), key=lambda path: (-sums[path], path))
    return [
        Wasted(path="/" + text(path), copies=copies[path], bytes=sums[path]) for path in ordered
    ]


def _nodes(
    shown: Mapping[bytes, Given], weights: Sequence[_Weights], top: bytes, depth: int
) -> Iterator[Node]:
    """The tree at `top`, a directory before what is in it, the largest of a directory first."""
    prefix = top + b"/" if top else b""
    shares: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
    for number, each in enumerate(weights):
        for path, size in each.seen.items():
            for above in _up(path, top, prefix):
                shares[above][number] += size
    children: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for path in shown:
        if path != top and path.startswith(prefix):
            children[path.rpartition(b"/")[0]].append(path)
    todo = [(top, 0)]
    while todo:
        path, below = todo.pop()
        yield _node(path, below, shown[path], shares[path])
        if below < depth:
            ordered = sorted(children[path], key=lambda child: (-shares[child].total(), child))
            todo += [(child, below + 1) for child in reversed(ordered)]


def _node(path: bytes, depth: int, given: Given, share: Counter[int]) -> Node:
    heaviest = max(share, key=lambda number: (share[number], number), default=given.layer)
    return Node(
        path="/" + text(path),
        depth=depth,
        is_directory=given.entry.kind is EntryKind.DIRECTORY,
        size_bytes=share.total(),
        layer=heaviest if share.total() else given.layer,
    )


def _up(path: bytes, top: bytes, prefix: bytes) -> Iterator[bytes]:
    """`path` and what is above it, down from `top`; nothing for a path elsewhere."""
    while path.startswith(prefix) and path != top:
        yield path
        path = path.rpartition(b"/")[0]
    if path == top:
        yield top
