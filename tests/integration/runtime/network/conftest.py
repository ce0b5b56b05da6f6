"""A node with the network of sandboxes, behind which lies a small internet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsec_runtime.network import hostservices
from dsec_runtime.network.network import Claimed, Network
from dsec_runtime.network.settings import Settings
from dsec_runtime.spec import NetworkRule
from tests.support.internet import Internet, internet


@dataclass
class Node:
    """The node's network, which a test may end and find again."""

    home: Path
    settings: Settings
    internet: Internet
    network: Network

    def claim(self, sandbox_id: str, *rules: NetworkRule) -> Claimed:
        return self.network.claim(sandbox_id, rules)

    def restart(self, **changes: Any) -> None:
        self.network.close()
        self.settings = msgspec.structs.replace(self.settings, **changes)
        self.network = Network(self.home, self.settings)

    def services(self, text: str) -> None:
        """Write the operator's table anew, as an editor does."""
        path = self.home / "edge/services.toml"
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name("draft")
        draft.write_text(text)
        draft.replace(path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Internet]:
    folder = tmp_path / "internet"
    folder.mkdir()
    with internet(folder) as found:
        yield found


@pytest.fixture
def node(tmp_path: Path, world: Internet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(hostservices, "find", lambda _: {})  # not those of this machine
    settings = Settings(ready=1, counts_age_s=0.0, resolv_conf=world.resolv_conf, node=world.node)
    found = Node(tmp_path / "home", settings, world, Network(tmp_path / "home", settings))
    yield found
    with contextlib.suppress(RuntimeError):  # the test has removed it
        found.network.remove()
