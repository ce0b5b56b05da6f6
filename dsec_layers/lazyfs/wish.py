"""What a caller wants mounted, and the journal record it starts as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsec_layers.lazyfs.journal import LayerUse, Owner, Phase, Record, new_id
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.linux import procinfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A rootfs of `layers` on `target`; without one, the layers alone.

    Without an `upper` a writable rootfs gets one of its own. `bound`: for this process's life.
    `on_layers` is called with the folders of the mounted layers, before the overlay is.
    """

    layers: Sequence[MountLayer]
    target: Path | None = None
    read_only: bool = False
    upper: Path | None = None
    extra_lowers: Sequence[Path] = ()
    on_layers: Callable[[Sequence[Path]], None] = lambda _: None
    name: str = ""
    bound: bool
    id: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", new_id(bound=self.bound))

    def record(self, folder: Path) -> Record:
        """The first record of this wish; `folder` is the rootfs's own."""
        writable = self.target is not None and not self.read_only
        upper = (self.upper.resolve() if self.upper else folder / "upper") if writable else None
        return Record(
            id=self.id,
            phase=Phase.MOUNTING,
            owner=Owner.current(),
            boot=procinfo.boot_id(),
            namespace=procinfo.mount_namespace() or 0,
            layers=tuple(LayerUse(layer.digest.hex) for layer in self.layers),
            bound=self.bound,
            name=self.name,
            target=str(self.target) if self.target else "",
            made_target=self.target is not None and not self.target.exists(),
            read_only=self.read_only,
            upper=str(upper) if upper else "",
            work=f"{upper}.work" if upper else "",
            own_upper=writable and self.upper is None,
        )
