"""How to build, and what that asks of the builder; for builds, and for looking at a Layerfile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dsec_layers.api.publishing import check_name
from dsec_layers.api.runtimes import remembered_runtime
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder.layers import Image
from dsec_layers.builder.request import BuildRequest, Lent, default_jobs, lend_nothing, locate
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.reference import Reference


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build. `layerfile` defaults to the one in the context; `kind` and `name` override it.

    `epoch_s` is SOURCE_DATE_EPOCH. `secrets` are contents by id, `contexts` further folders by
    name, `layers` what other names mean. With `pull` registries are asked anew for the images that
    it stands on. `host_mirrors` lends RUN steps this machine's package settings. `jobs` is how many
    steps are done at once, `workers` how many threads compress; None is as many as there are cores.

    Results of steps are looked for in the stores `cache_from` and put into those of `cache_to`
    (URLs). Here, those used last are kept, up to `cache_bytes`; None is a tenth of the disk. With
    `verify` all is built twice, and nothing is tagged when the layers differ. Chunks of
    `chunk_dicts` are referred to instead of stored again.
    """

    layerfile: Path | None = None
    kind: str | None = None
    name: str | None = None
    target: str | None = None
    args: Mapping[str, str] = field(default_factory=dict)
    epoch_s: int | None = None
    no_cache: bool = False
    host_mirrors: bool = False
    workers: int | None = None
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    contexts: Mapping[str, Path] = field(default_factory=dict)
    layers: Mapping[str, Reference | Image] = field(default_factory=dict)
    pull: bool = False
    jobs: int | None = None
    cache_from: Sequence[str] = ()
    cache_to: Sequence[str] = ()
    cache_bytes: int | None = None
    verify: bool = False
    chunk_dicts: Sequence[Reference] = ()


def request_of(
    bench: Workbench,
    path: Path,
    reference: Reference | None,
    options: BuildOptions,
) -> BuildRequest:
    """What to ask of the builder for the Layerfile at `path`, a directory or the file.

    Stores that have results of steps are left out, as opening them may take long. Raises
    NotFoundError for a context that is none, InvalidInputError when `options` and `reference` say
    different things.
    """
    _check_agreement(reference, options)
    layerfile, context = (options.layerfile, path) if options.layerfile else locate(path)
    if not context.is_dir():
        raise NotFoundError(f"the context {context} is no directory")
    return BuildRequest(
        layerfile=layerfile,
        context=context,
        home=bench.home.builder,
        args=options.args,
        kind=options.kind or (reference.kind.value if reference else None),
        name=options.name or (reference.name if reference else None),
        target=options.target,
        epoch=options.epoch_s,
        no_cache=options.no_cache,
        jobs=options.jobs or default_jobs(),
        lend=_lend if options.host_mirrors else lend_nothing,
        runtime=partial(remembered_runtime, bench.home.run),
        secrets=options.secrets,
        contexts=_contexts(options.contexts),
        layers={name.lower(): layer for name, layer in options.layers.items()},
    )


def _contexts(given: Mapping[str, Path]) -> dict[str, Path]:
    """By name in lower case, as names of stages are compared."""
    for name, path in given.items():
        if not path.is_dir():
            raise NotFoundError(f"the build context {name}={path} is no directory")
    return {name.lower(): path for name, path in given.items()}


def _check_agreement(reference: Reference | None, options: BuildOptions) -> None:
    """A base holds a whole tree and the others a diff: one tagged as the other would be broken."""
    if reference is None:
        return
    check_name(reference)
    for what, given, wanted in (
        ("kind", options.kind, reference.kind.value),
        ("name", options.name, reference.name),
    ):
        if given not in (None, wanted):
            raise InvalidInputError(f"the {what} {given} is not that of {reference}")


def _lend(rootfs: Path, folder: Path) -> Lent:
    """What `--host-mirrors` lends."""
    from dsec_layers.linux import hostmirrors

    loan = hostmirrors.lend(rootfs, folder)
    return Lent(tuple(loan.binds), loan.env)
