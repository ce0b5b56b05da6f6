"""Who asks."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """A name, and whether all sandboxes of the node are theirs or those they made only."""

    name: str
    is_operator: bool = False


LOCAL = Principal("local", is_operator=True)  # whoever may open the Unix socket
