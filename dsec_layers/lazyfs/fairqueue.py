"""A queue in which owners take turns, so that one with many wishes does not hold up one with few.

What is urgent goes before what is not, whoever owns it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

O = TypeVar("O", bound=Hashable)  # noqa: E741 - an owner
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class FairQueue(Generic[O, K, T]):
    """Items by owner and key. Not thread-safe."""

    def __init__(self) -> None:
        self._urgent: OrderedDict[O, OrderedDict[K, T]] = OrderedDict()
        self._others: OrderedDict[O, OrderedDict[K, T]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._others)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[T]:
        for level in (self._urgent, self._others):
            for items in level.values():
                yield from items.values()

    def push(self, owner: O, key: K, item: T, *, urgent: bool = True) -> None:
        """Put an item behind all others of its owner."""
        level = self._urgent if urgent else self._others
        level.setdefault(owner, OrderedDict())[key] = item

    def hurry(self, owner: O, key: K) -> None:
        """Make an item urgent, if it is here and is not."""
        item = self._take(self._others, owner, key)
        if item is not None:
            self.push(owner, key, item)

    def pop(self) -> T:
        """The oldest item of the owner whose turn it is. Raises KeyError when there is none."""
        level = self._urgent or self._others
        owner, items = level.popitem(last=False)
        _, item = items.popitem(last=False)
        if items:
            level[owner] = items  # behind everybody else
        return item

    def take(self, owner: O, key: K) -> T | None:
        """This item out of turn, or None."""
        item = self._take(self._urgent, owner, key)
        return self._take(self._others, owner, key) if item is None else item

    def clear(self) -> list[T]:
        """Everything, which is gone then."""
        items = list(self)
        self._urgent.clear()
        self._others.clear()
        return items

    @staticmethod
    def _take(level: OrderedDict[O, OrderedDict[K, T]], owner: O, key: K) -> T | None:
        items = level.get(owner)
        item = items.pop(key, None) if items else None
        if items is not None and not items:
            del level[owner]
        return item
