"""How the network of a node is laid out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The range must be free in the node's own network; `ready` namespaces are made ahead.

    `grace_s` is how long an answer is good after its time, since programs do not look at it.
    `node` is the network namespace that leads out, where that is not this process's.
    """

    range: str = "10.231.0.0/16"
    ready: Annotated[int, Meta(ge=0)] = 4
    grace_s: Annotated[float, Meta(ge=0)] = 60.0
    counts_age_s: Annotated[float, Meta(ge=0)] = 1.0
    resolv_conf: Path = Path("/etc/resolv.conf")
    node: Path | None = None
