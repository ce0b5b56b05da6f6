"""Where steps take files from besides their own root: the context, stages done, and layers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dsec_layers.builder.execution import mounted
from dsec_layers.builder.layers import LayerProvider, OpenLayer, ParentLayer
from dsec_layers.builder.plan import StagePlan
from dsec_layers.builder.selection import Origin
from dsec_layers.builder.stepcache import Result, StepCache
from dsec_layers.builder.steps import Where
from dsec_layers.linux import mount
from dsec_layers.model.digest import Digest

_NOTHING = "scratch"


class OpenLayers:
    """The layers a build stands on, each mounted when it is first needed; for any thread."""

    def __init__(self, provider: LayerProvider, stack: contextlib.ExitStack) -> None:
        self._provider = provider
        self._stack = stack
        self._opened: dict[Digest, OpenLayer] = {}
        self._lock = threading.Lock()

    def open(self, layer: ParentLayer) -> OpenLayer:
        """The mounted layer, until the build ends."""
        with self._lock:
            if layer.digest not in self._opened:
                self._opened[layer.digest] = self._stack.enter_context(self._provider.open(layer))
            return self._opened[layer.digest]


class StageState(msgspec.Struct, frozen=True):
    """A stage so far: the results of its steps, oldest first, over a layer or nothing."""

    layer: ParentLayer | None
    results: tuple[Result, ...] = ()

    @property
    def identity(self) -> str:
        """What decides all that is in it."""
        if self.results:
            return self.results[-1].identity
        return str(self.layer.digest) if self.layer else _NOTHING


class Stages:
    """The stages of a plan and the results that their steps have had, from any thread."""

    def __init__(self, plans: Sequence[StagePlan]) -> None:
        self._plans = {plan.index: plan for plan in plans}
        self._results: dict[int, tuple[Result, ...]] = {plan.index: () for plan in plans}

    def add(self, stage: int, result: Result) -> None:
        """The next step of a stage is done; there is never another thread in the same stage."""
        self._results[stage] = (*self._results[stage], result)

    def state(self, stage: int) -> StageState:
        """A stage with what it continues, which must be done."""
        plan = self._plans[stage]
        if not isinstance(plan.parent, int):
            return StageState(plan.parent, self._results[stage])
        below = self.state(plan.parent)
        return StageState(below.layer, below.results + self._results[stage])


class Origins:
    """Gives views of contexts (None has no name), of stages that are done, and of layers."""

    def __init__(
        self,
        contexts: Mapping[str | None, Origin],
        opened: OpenLayers,
        stages: Stages,
        cache: StepCache,
    ) -> None:
        self._contexts = contexts
        self._opened = opened
        self._stages = stages
        self._cache = cache

    def lowers(self, stage: StageState) -> list[Path]:
        """The directories below the next step of a stage, topmost first."""
        layer = self._opened.open(stage.layer).lowers if stage.layer else []
        return [*(result.upper for result in reversed(stage.results)), *layer]

    def identity(self, origin: int | ParentLayer) -> str:
        """What decides all that is in a stage or layer."""
        if isinstance(origin, int):
            return self._stages.state(origin).identity
        return str(origin.digest)

    def view(self, origin: Where, stack: contextlib.ExitStack) -> Origin:
        """An origin to read from; stages and layers are shown read-only until `stack` ends."""
        if origin is None or isinstance(origin, str):
            return self._contexts[origin]
        # The empty folder below all makes it an overlay, which shows content without its escapes.
        below = stack.enter_context(self._cache.working()).stubs
        view = stack.enter_context(mount.overlay_view([*self._lowers_of(origin), below]))
        return Origin(view, self.name(origin))

    def mounted(self, origin: int | ParentLayer, stack: contextlib.ExitStack) -> Path:
        """A stage or layer, mounted until `stack` ends; what is written there is lost."""
        folder = stack.enter_context(self._cache.working())
        return stack.enter_context(mounted(folder, self._lowers_of(origin)))

    def name(self, origin: int | ParentLayer) -> str:
        """The origin, for errors."""
        return f"stage {origin}" if isinstance(origin, int) else f"the layer {origin.reference}"

    def _lowers_of(self, origin: int | ParentLayer) -> list[Path]:
        if isinstance(origin, int):
            return self.lowers(self._stages.state(origin))
        return list(self._opened.open(origin).lowers)
