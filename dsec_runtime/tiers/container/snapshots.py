"""What a sandbox has written: committed as a layer, or copied for another sandbox."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from dsec_layers.api.committing import CommitOptions
from dsec_layers.api.committing import commit as commit_layer
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder.gitscrub import ScrubOptions
from dsec_layers.builder.residuerules import choose
from dsec_layers.model.reference import Reference
from dsec_runtime.errors import InfrastructureError
from dsec_runtime.resources.disks import Disks
from dsec_runtime.spec import SnapshotOptions
from dsec_runtime.tiers.container.places import Sandbox


def commit(
    bench: Workbench,
    sandbox: Sandbox,
    digests: Sequence[str],
    reference: str,
    options: SnapshotOptions,
) -> str:
    """Make the layer `reference` of the changes of a sandbox that stands still; its digest.

    Raises what `committing.commit` raises.
    """
    upper = sandbox.disk / "upper"
    scrubs = options.scrub_git or options.shallow
    wanted = CommitOptions(
        layers=tuple(digests),
        rules=choose(options.keep, options.drop),
        scrub=ScrubOptions(shallow=options.shallow) if scrubs else None,
    )
    told = commit_layer(bench, upper, Reference.parse(reference), wanted)
    if told.layer is None:
        raise InfrastructureError(f"no layer was made of {sandbox.id}")
    return told.layer.digest


def copy_disk(disks: Disks, source: Sandbox, sandbox: Sandbox) -> None:
    """Give a sandbox the files of one that stands still. Raises CreationFailedError."""
    place = disks.copy(source.folder, sandbox.folder)
    # The kernel refuses the work folder of an overlay that did not end.
    work = place / "work"
    shutil.rmtree(work)
    work.mkdir(mode=0o755)
