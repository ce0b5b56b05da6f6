from __future__ import annotations

import os
import time
from pathlib import Path

from dsec_layers.api import buildcache
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder.caches import Caches


def test_what_was_not_used_for_long_is_removed(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "home")
    folder = bench.home.builder / "caches"
    for name in ("old", "new"):
        with Caches(folder).use(name, "shared", lambda data: None):
            pass
    hour_ago = time.time() - 3600
    os.utime(folder / "old", (hour_ago, hour_ago))
    assert [row.name for row in buildcache.usage(bench)] == ["new", "old"]
    would = buildcache.prune(bench, unused_s=1800, dry_run=True)
    assert [row.name for row in would] == ["old"]
    assert [row.name for row in buildcache.prune(bench, unused_s=1800)] == ["old"]
    (left,) = buildcache.usage(bench)
    assert left.name == "new"
    assert buildcache.prune(bench, keep_bytes=left.size_bytes) == []
    assert buildcache.prune(bench) == [left]
