"""Keys of the step cache: the sha256 over everything that decides what a step gives.

Times of files are no inputs, nor is what a machine lends to a step (proxies, package mirrors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dsec_layers.builder.steps import (
    BindMount,
    CacheMount,
    CopyStep,
    RunStep,
    SecretMount,
    StepMount,
    WorkdirStep,
    is_outside,
)
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest

# Counts up whenever a step gives another result for the same inputs.
_VERSION: Final = 2


def run_key(step: RunStep, parent: str, files: Sequence[str] = ()) -> str:
    """The key of a RUN on the result `parent`; its environment holds the epoch.

    `files` are digests of what its bind mounts show. What caches and secrets hold is no input.
    """
    mounts = {"mounts": list(map(_mount, step.mounts)), "files": files} if step.mounts else {}
    return _key(
        "run",
        parent,
        argv=step.argv,
        env=dict(step.env),
        cwd=step.cwd,
        user=step.user,
        network=step.network,
        script=step.script.content if step.script else None,
        **mounts,
    )


def copy_key(step: CopyStep, parent: str, content: str, epoch: int | None) -> str:
    """The key of a COPY of what has the digest `content`, on the result `parent`."""
    return _key(
        "copy",
        parent,
        content=content,
        inline=[(file.name, str(Digest.sha256(file.content))) for file in step.inline],
        destination=step.destination,
        chown=step.chown,
        chmod=step.chmod,
        keeps_owner=not is_outside(step.origin),
        epoch=epoch,
    )


def workdir_key(step: WorkdirStep, parent: str) -> str:
    """The key of a WORKDIR on the result `parent`."""
    return _key("workdir", parent, path=step.path, user=step.user)


def _key(kind: str, parent: str, **inputs: object) -> str:
    value = {"version": _VERSION, "step": kind, "parent": parent, **inputs}
    return Digest.sha256(canonical.encode(value)).hex


def _mount(mount: StepMount) -> Mapping[str, object]:
    """What a command sees of a mount but the files in it."""
    match mount:
        case BindMount():
            return {"bind": mount.target, "writable": mount.writable}
        case CacheMount():
            seen = {"mode": mount.mode, "owner": mount.owner, "writable": mount.writable}
            return {"cache": mount.target, **seen}
        case SecretMount():
            seen = {"mode": mount.mode, "owner": mount.owner, "variable": mount.variable}
            return {"secret": mount.id, "target": mount.target, **seen}
    return {"tmpfs": mount.target, "size": mount.size_bytes}
