"""Chunks passed on from memory while a layer is cut, and the memory that comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from dsec_layers.chunks.memory import Cut, Recipes
from dsec_layers.chunks.pipeline import ChunkPipeline


class Recall:
    """Knows the `recipes` of before; `made` are those of this layer."""

    def __init__(self, recipes: Recipes, pipeline: ChunkPipeline) -> None:
        self._recipes = recipes
        self._pipeline = pipeline
        self._ends: list[tuple[bytes, int]] = []  # of each key: how many chunks there were then

    def take(self, key: bytes) -> bool:
        """Pass on the chunks of a key, if they are known and stored somewhere; else nothing."""
        cuts: Sequence[Cut] = self._recipes.get(key, ())
        if not cuts or not all(self._pipeline.has(cut.digest) for cut in cuts):
            return False
        for cut in cuts:
            self._pipeline.refer(cut)
        return True

    def note(self, key: bytes) -> None:
        """All that was passed on since the last call are the chunks of this key."""
        self._ends.append((key, self._pipeline.count))

    def made(self, chunks: Iterable[tuple[bytes, int]]) -> dict[bytes, tuple[Cut, ...]]:
        """The recipes of what was noted; `chunks` are digest and length of all, in their order."""
        cuts: Iterator[Cut] = map(Cut._make, chunks)
        found: dict[bytes, tuple[Cut, ...]] = {}
        before = 0
        for key, end in self._ends:
            found[key] = tuple(islice(cuts, end - before))
            before = end
        return found
