"""Steps done side by side: each found in the step cache, or carried out and kept there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from dsec_layers.builder import execution, keys, schedule
from dsec_layers.builder.caches import Caches
from dsec_layers.builder.events import (
    BuildEvent,
    Note,
    Progress,
    StepCached,
    StepDone,
    StepOutput,
    StepStarted,
)
from dsec_layers.builder.failures import command_failed, explained
from dsec_layers.builder.fetching import expected, fetched
from dsec_layers.builder.mounting import Inputs, Mounter, find_inputs
from dsec_layers.builder.order import NumberedStep
from dsec_layers.builder.origins import Origins, Stages
from dsec_layers.builder.request import BuildRequest
from dsec_layers.builder.selection import Selected, content_digest, identify, select_for
from dsec_layers.builder.stepcache import Result, StepCache, WorkFolder
from dsec_layers.builder.steps import CopyStep, RunStep, is_outside
from dsec_layers.builder.stepstores import MadeStep
from dsec_layers.linux import cancelling


class Performed(msgspec.Struct, frozen=True):
    """The digests of what was copied, and all steps done."""

    copied: tuple[str, ...]
    steps: tuple[MadeStep, ...]


def carry_out(
    request: BuildRequest,
    epoch: int | None,
    steps: Sequence[NumberedStep],
    origins: Origins,
    stages: Stages,
    cache: StepCache,
    progress: Progress,
    on_command: Callable[[int], None] = lambda stage: None,
) -> Performed:
    """Do all steps, `request.jobs` at once; `stages` has their results afterwards.

    `progress` is called by several threads, never at once, and `on_command` with the number of its
    stage before each command is run. What is returned is in the order of the
    steps, whichever ended first. Raises the error of the step that failed first.
    """
    performer = _Performer(request, epoch, steps, origins, stages, cache, progress, on_command)
    tasks = {step.number: step.needs for step in steps}
    schedule.carry_out(tasks, performer.perform, request.jobs)
    copied = tuple(digest for step in steps for digest in performer.copied[step.number])
    return Performed(copied, tuple(performer.made[step.number] for step in steps))


class _Performer:
    """Does steps by number. `copied` has the digests of what each copied, `made` what it gave."""

    def __init__(
        self,
        request: BuildRequest,
        epoch: int | None,
        steps: Sequence[NumberedStep],
        origins: Origins,
        stages: Stages,
        cache: StepCache,
        progress: Progress,
        on_command: Callable[[int], None],
    ) -> None:
        self.copied: dict[int, list[str]] = {step.number: [] for step in steps}
        self._request = request
        self._epoch = epoch
        self._steps = {step.number: step for step in steps}
        self._origins = origins
        self._stages = stages
        self._cache = cache
        self._mounter = Mounter(origins, Caches(request.home / "caches"), request.secrets, epoch)
        self._progress = _one_at_a_time(progress)
        self._on_command = on_command
        self.made: dict[int, MadeStep] = {}
        self._results: dict[str, Result] = {}  # of this build, by key
        self._busy: dict[str, threading.Lock] = {}

    def perform(self, number: int) -> None:
        """Do one step, all that it needs being done."""
        numbered = self._steps[number]
        step, total = numbered.step, len(self._steps)
        self._progress(StepStarted(number, total, step.title, step.where))
        with explained(step, f"step {number}/{total}"):
            result = self._result(numbered)
        self._stages.add(numbered.stage, result)

    def _result(self, numbered: NumberedStep) -> Result:
        step = numbered.step
        with contextlib.ExitStack() as stack:
            selected = self._select(step, stack) if isinstance(step, CopyStep) else []
            shown = find_inputs(step, self._origins) if isinstance(step, RunStep) else Inputs()
            key = self._key(numbered, selected, shown)
            # Two stages may begin with the same steps: one waits for the other then.
            stack.enter_context(self._busy.setdefault(key, threading.Lock()))
            cancelling.check()
            result = self._found(numbered, key) or self._make(numbered, key, selected, shown)
            self._results[key] = result
        parent = self._stages.state(numbered.stage).identity
        self.made[numbered.number] = MadeStep(key, step.title, parent, result)
        return result

    def _found(self, numbered: NumberedStep, key: str) -> Result | None:
        found = self._results.get(key)
        if found is None and not self._request.no_cache:
            found = self._cache.find(key)
            if found is None:
                return self._fetched(numbered, key)
        if found is not None:
            self._progress(StepCached(numbered.number))
        return found

    def _fetched(self, numbered: NumberedStep, key: str) -> Result | None:
        """What another machine has made of the step; here afterwards."""
        for store in self._request.step_stores:
            with self._cache.working() as folder:
                identity = store.fetch(key, folder, lambda text: self._progress(Note(text)))
                if identity is not None:
                    title = numbered.step.title
                    result = self._cache.publish(
                        key, folder, title=title, identity=identity, replace=False
                    )
                    self._progress(StepCached(numbered.number, store.url))
                    return result
        return None

    def _make(
        self, numbered: NumberedStep, key: str, selected: list[Selected], shown: Inputs
    ) -> Result:
        step = numbered.step
        started = time.monotonic()
        with self._cache.working() as folder:
            lowers = self._origins.lowers(self._stages.state(numbered.stage))
            if isinstance(step, CopyStep):
                selected = [*selected, *fetched(step, folder.spool, with_checksum=True)]
                execution.copy(step, folder, lowers, selected, self._epoch)
            elif isinstance(step, RunStep):
                self._on_command(numbered.stage)
                self._run(numbered.number, step, folder, lowers, shown)
            else:
                execution.make_workdir(step, folder, lowers)
            result = self._cache.publish(
                key,
                folder,
                title=step.title,
                identity=None if isinstance(step, RunStep) else key,
                replace=self._request.no_cache,
            )
        self._progress(StepDone(numbered.number, time.monotonic() - started))
        return result

    def _key(self, numbered: NumberedStep, selected: list[Selected], shown: Inputs) -> str:
        step, copied = numbered.step, self.copied[numbered.number]
        parent = self._stages.state(numbered.stage).identity
        if isinstance(step, RunStep):
            copied += shown.digests
            return keys.run_key(step, parent, shown.digests)
        if isinstance(step, CopyStep):
            found = identify(selected)
            # Who cloned a repository is no input of what is built from it, and must not show in it.
            copied.append(content_digest(found, with_owners=not is_outside(step.origin)))
            content = content_digest(found, with_owners=True)
            if known := expected(step):
                copied.append(known)
                content = f"{content} {known}"
            return keys.copy_key(step, parent, content, self._epoch)
        return keys.workdir_key(step, parent)

    def _run(
        self, number: int, step: RunStep, folder: WorkFolder, lowers: list[Path], shown: Inputs
    ) -> None:
        def tell(data: bytes) -> None:
            self._progress(StepOutput(number, data))

        with contextlib.ExitStack() as stack:
            mounts = self._mounter.show(step, shown, folder.spool, stack)
            by = stack.enter_context(self._request.runtime())
            lend = self._request.lend
            finished = execution.run(step, folder, lowers, lend, tell, mounts, by)
        if finished.status != 0:
            label = f"step {number}/{len(self._steps)}"
            raise command_failed(step, label, finished, self._request.home)

    def _select(self, step: CopyStep, stack: contextlib.ExitStack) -> list[Selected]:
        selected = select_for(step, self._origins.view(step.origin, stack))
        if step.remote:
            spool = stack.enter_context(self._cache.working()).spool
            selected += fetched(step, spool, with_checksum=False)
        return selected


def _one_at_a_time(progress: Progress) -> Progress:
    lock = threading.Lock()

    def tell(event: BuildEvent) -> None:
        with lock:
            progress(event)

    return tell
