"""git(1) of this machine on repositories of strangers.

Nothing of a stranger's configuration is read: a `Shadow` is a repository of ours with his
references, index and shallow boundary, which takes his objects as an alternate. No hooks, no file
system monitor, no transport, no replaced objects.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsec_layers.linux import process

_SETTINGS: Final = {
    "safe.directory": "*",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.commitGraph": "false",  # a stranger's commit graph could hide commits
    "protocol.allow": "never",
    "gc.auto": "0",
    "pack.threads": "1",  # the same objects give the same pack
}


def environment() -> Mapping[str, str]:
    """The variables under which git is run."""
    given = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    }
    for number, (name, value) in enumerate(_SETTINGS.items()):
        given[f"GIT_CONFIG_KEY_{number}"] = name
        given[f"GIT_CONFIG_VALUE_{number}"] = value
    return given


@dataclass(frozen=True, slots=True)
class Shadow:
    """A bare repository at `folder`."""

    folder: Path

    def run(self, *words: str | Path, stdin: bytes = b"") -> bytes:
        """The output of a git command. Raises DsecError when it fails, CapabilityMissingError."""
        argv = ["git", f"--git-dir={self.folder}", *words]
        return process.run(argv, env=environment(), cwd=self.folder, stdin=stdin).stdout

    def asked(self, *words: str | Path) -> str | None:
        """The same as a line of text; None when git fails, as it does for what is not there."""
        argv = ["git", f"--git-dir={self.folder}", *words]
        done = process.run(argv, env=environment(), cwd=self.folder, check=False)
        return done.stdout.decode("utf-8", "surrogateescape").strip() if done.status == 0 else None

    def lines(self, *words: str | Path) -> list[bytes]:
        """The lines of its output."""
        return self.run(*words).splitlines()


def setting(file: Path, name: str) -> str | None:
    """The value of a setting in one file, without what it includes; None when it has none."""
    argv: list[str | Path] = ["git", "config", "--no-includes", "--file", file, "--get", name]
    done = process.run(argv, env=environment(), check=False)
    return done.stdout.decode("utf-8", "replace").strip() if done.status == 0 else None


def make_shadow(folder: Path, *, objects: Iterable[Path] = (), sha256: bool = False) -> Shadow:
    """An empty bare repository in the new `folder`, with the object folders of others."""
    for name in ("objects/info", "objects/pack", "refs"):
        (folder / name).mkdir(parents=True)
    lines = ["[core]", "\tbare = true", f"\trepositoryformatversion = {int(sha256)}"]
    if sha256:
        lines += ["[extensions]", "\tobjectFormat = sha256"]
    (folder / "config").write_text("\n".join(lines) + "\n")
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    alternates = b"".join(os.fsencode(each) + b"\n" for each in objects)
    (folder / "objects/info/alternates").write_bytes(alternates)
    return Shadow(folder)
