"""What mountinfo says of overlays, in each spelling of the kernel."""

from pathlib import Path

import pytest

from dsec_layers.linux import overlays
from dsec_layers.linux.overlays import OverlayMount

MOUNTINFO = rb"""22 1 8:1 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /mnt/a\040b rw - overlay x rw,lowerdir+=/l/two,lowerdir+=/l/o\054ne,upperdir=/u
31 22 0:41 / /mnt/c rw - overlay overlay rw,lowerdir=/l/two:/l/one,upperdir=/v
32 22 0:42 / /mnt/d ro - overlay overlay ro,lowerdir=/l/two:/l/one
"""


@pytest.fixture(autouse=True)
def mountinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda _: MOUNTINFO)


def test_all() -> None:
    assert list(overlays.overlays()) == [
        OverlayMount(Path("/mnt/a b"), Path("/u"), (Path("/l/two"), Path("/l/o,ne"))),
        OverlayMount(Path("/mnt/c"), Path("/v"), (Path("/l/two"), Path("/l/one"))),
        OverlayMount(Path("/mnt/d"), None, (Path("/l/two"), Path("/l/one"))),
    ]


def test_one() -> None:
    found = overlays.overlay_at(Path("/mnt/c"))
    assert found is not None
    assert found.upper == Path("/v")
    assert overlays.overlay_at(Path("/mnt")) is None
    assert overlays.overlay_over(Path("/v")) == found
    assert overlays.overlay_over(Path("/l/one")) is None
