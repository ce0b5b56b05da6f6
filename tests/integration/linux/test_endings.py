"""Network namespaces that nobody needs: out of sight at once, and gone soon, one or many."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from dsec_runtime.linux import namespaces, rtnetlink
from dsec_runtime.linux.namespaces import Endings
from dsec_runtime.linux.rtnetlink import End, Rtnetlink

pytestmark = pytest.mark.root

COUNT = 11  # more than end at once, and some that wait for others
_PATIENCE_S = 60.0


def links() -> set[str]:
    with IPRoute() as netlink:
        return {link.get("ifname") for link in netlink.get_links()} - {"lo"}


def test_they_end_with_their_links(tmp_path: Path) -> None:
    router, paths = tmp_path / "router", [tmp_path / str(number) for number in range(COUNT)]
    endings = Endings()
    namespaces.in_new_network(router, lambda: None)
    try:
        with router.open() as there:
            for number, path in enumerate(paths):
                ends = (
                    End(2, "eth0", bytes(5) + b"\2"),
                    End(100 + number, f"s{number}", bytes(5) + b"\4", there.fileno()),
                )
                namespaces.in_new_network(path, lambda: _join(ends))  # noqa: B023 # run at once
        with namespaces.Inside(router, "test") as inside:
            assert len(inside.run(links)) == COUNT
            for path in paths:
                endings.forget(path)
                assert not path.exists()
            _wait_for(lambda: not inside.run(links))
    finally:
        endings.close()
        for path in (router, *paths):
            namespaces.forget(path)


def test_what_is_not_there_and_what_waits_at_the_end(tmp_path: Path) -> None:
    endings = Endings()
    endings.forget(tmp_path / "none")
    kept = tmp_path / "kept"
    namespaces.in_new_network(kept, lambda: None)
    endings.forget(kept)
    endings.close()
    assert not kept.exists()


def _join(ends: tuple[End, End]) -> None:
    with Rtnetlink() as netlink:
        netlink.run(rtnetlink.add_veth(*ends))


def _wait_for(done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _PATIENCE_S
    while not done():
        assert time.monotonic() < give_up
        time.sleep(0.01)
