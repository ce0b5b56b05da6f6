"""Containers by crun alone, on a prepared bundle: what sandboxes are compared with.

crun does not want the mixture of cgroups of some machines, so it is called from a mount namespace
in which it works; a process that stays there for all calls (`crunner`) costs them nothing.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from dsec_layers.linux.runtime import find_runtime, remove_cgroups

_CRUNNER: Final = Path(__file__).with_name("crunner.py")
# It goes with the thread that made it, and all its calls wait for their end.
_OWN_MOUNTS: Final = ("unshare", "--mount", "--propagation=slave", "--")
TRUE: Final = ("/bin/true",)
SLEEP: Final = ("/bin/sleep", "infinity")


class Bare:
    """crun on a root file system; what was started and not removed goes at the end."""

    def __init__(self, root: Path) -> None:
        self._runtime = find_runtime()
        if Path(self._runtime.program).name != "crun":
            raise RuntimeError("the goals are against crun, which does not work here")
        self._folder = Path(tempfile.mkdtemp(prefix="bench-node-", dir="/var/tmp"))
        (self._folder / "state").mkdir()  # two that begin at once would both make it
        self._bundles = {words: self._bundle(root, words) for words in (TRUE, SLEEP)}
        self._started: list[str] = []
        self._count = 0
        self._callers = [_Caller(self._runtime.prefix) for _ in range(2)]

    def __enter__(self) -> Bare:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.delete_all()
        finally:
            for caller in self._callers:
                caller.close()
            shutil.rmtree(self._folder)

    def run(self, caller: int = 0) -> float:
        """The seconds of a container that runs `true`, from nothing to nothing."""
        name = self._name(caller)
        return self._callers[caller].call(self._words("run", "--bundle", self._bundles[TRUE], name))

    def start(self) -> str:
        """Start a container that sleeps; its name."""
        name = self._name(0)
        self._started.append(name)
        bundle = self._bundles[SLEEP]
        self._callers[0].call(self._words("run", "--detach", "--bundle", bundle, name))
        return name

    def delete_all(self) -> None:
        """End those that sleep."""
        while self._started:
            name = self._started.pop()
            with contextlib.suppress(subprocess.CalledProcessError):  # it was never started
                self._callers[0].call(self._words("delete", "--force", name))
            remove_cgroups(name)

    def _name(self, caller: int) -> str:
        self._count += 1
        return f"{self._folder.name}-{caller}-{self._count}"

    def _words(self, *words: str | Path) -> list[str]:
        return [self._runtime.program, f"--root={self._folder / 'state'}", *map(str, words)]

    def _bundle(self, root: Path, words: tuple[str, ...]) -> Path:
        """What `crun spec` proposes, for `root` as it is."""
        bundle = self._folder / Path(words[0]).name
        bundle.mkdir()
        subprocess.run([self._runtime.program, "spec"], cwd=bundle, check=True)
        path = bundle / "config.json"
        config: dict[str, Any] = json.loads(path.read_text())
        config["root"] = {"path": str(root), "readonly": True}
        config["process"] |= {"args": list(words), "terminal": False}
        path.write_text(json.dumps(config))
        return bundle


class _Caller:
    """A crunner; one call at a time."""

    def __init__(self, prefix: tuple[str, ...]) -> None:
        self._busy = threading.Lock()
        self._process = subprocess.Popen(
            [*_OWN_MOUNTS, *prefix, sys.executable, _CRUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def call(self, words: list[str]) -> float:
        """The seconds that it took. Raises CalledProcessError."""
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        with self._busy:
            sink.write(json.dumps(words).encode() + b"\n")
            sink.flush()
            status, seconds = json.loads(source.readline())
        if status:
            raise subprocess.CalledProcessError(status, words)
        return float(seconds)

    def close(self) -> None:
        """End it."""
        self._process.communicate()
