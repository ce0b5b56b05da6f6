"""What people do in a working directory, each as a function of a root; the tree it starts from."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

_ENVIRON: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "SOURCE_DATE_EPOCH": "1700000000",
}
# Files that hold inode numbers or times; the commands that made them check them.
_OWN: Final = (".git/index", ".git/logs/HEAD")
MODULES: Final = 8


def make_project(root: Path) -> None:
    """A git repository with history, a C program, an installed Python package, a newer wheel."""
    source = random.Random(11)
    project = root / "project"
    (project / "src").mkdir(parents=True)
    for number in range(MODULES):
        (project / f"src/m{number}.c").write_text(
            f"int m{number}(int x) {{ return x * {number} + {source.randrange(99)}; }}\n"
        )
    calls = " + ".join(f"m{number}(1)" for number in range(MODULES))
    heads = "".join(f"int m{number}(int);\n" for number in range(MODULES))
    main = f'#include <stdio.h>\n{heads}int main(void) {{ printf("%d\\n", {calls}); }}\n'
    (project / "main.c").write_text(main)
    (project / "old").mkdir()
    (project / "old/notes").write_text("one\n" * 500)
    _git(project, "init", "-q", "-b", "main")
    _git(project, "add", ".")
    _git(project, "commit", "-q", "-m", "one")
    _git(project, "checkout", "-q", "-b", "other")
    _git(project, "mv", "old", "new")
    (project / "main.c").write_text(f"/* other */\n{main}")
    _git(project, "commit", "-q", "-a", "-m", "two")
    _git(project, "checkout", "-q", "main")
    _git(project, "gc", "-q")
    (root / "wheels").mkdir()
    for version in ("1.0", "2.0"):
        _make_wheel(root / "wheels", version)
    install(root, "1.0")


def clone(root: Path) -> None:
    """Clone, switch branches in the lower repository, commit, collect, check."""
    project, copy = root / "project", root / "copy"
    _git(root, "clone", "-q", str(project), str(copy))
    _git(copy, "remote", "set-url", "origin", "https://example.com/project")
    for repository in (project, copy):
        _git(repository, "checkout", "-q", "other")
        (repository / "new/notes").write_text("changed\n")
        _git(repository, "commit", "-q", "-a", "-m", "three")
        _git(repository, "checkout", "-q", "main")
        _git(repository, "merge", "-q", "other")
        _git(repository, "gc", "-q", "--prune=now")
        _git(repository, "fsck", "--strict")
        assert _git(repository, "status", "--porcelain") == ""


def install(root: Path, version: str = "2.0") -> None:
    """`pip install` over what an earlier one has installed."""
    wares = f"wares=={version}"
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-compile", "--no-deps")
    _run(root, *pip, "--find-links", "wheels", "--upgrade", "--target", "site", wares)
    told = _run(
        root,
        sys.executable,
        "-B",
        "-c",
        "import sys; sys.path.insert(0, 'site'); import wares; print(wares.VERSION)",
    )
    assert told == f"{version}\n"


def compile_all(root: Path) -> None:
    """Compile, archive, link and run; then touch a source and do it again."""
    project = root / "project"
    for _ in range(2):
        objects = []
        for source in sorted(project.glob("src/*.c")):
            _run(
                project,
                "gcc",
                "-O1",
                "-c",
                str(source.relative_to(project)),
                "-o",
                f"{source.stem}.o",
            )
            objects.append(f"{source.stem}.o")
        (project / "libm.a").unlink(missing_ok=True)
        _run(project, "ar", "rcsD", "libm.a", *objects)
        _run(project, "gcc", "main.c", "libm.a", "-o", "program")
        assert _run(project, "./program").strip().isdigit()
        (project / "src/m1.c").write_text("int m1(int x) { return 1; }\n")


def shown(root: Path) -> dict[str, tuple[object, ...]]:
    """Type, mode, links and content of every entry below `root`."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        name, status = str(path.relative_to(root)), path.lstat()
        if name.endswith(_OWN):
            continue
        kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
        if stat.S_ISREG(status.st_mode):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[name] = (kind, mode, status.st_nlink, status.st_size, digest)
        else:
            found[name] = (kind, mode, os.readlink(path) if path.is_symlink() else "")
    return found


def _make_wheel(folder: Path, version: str) -> None:
    info = f"wares-{version}.dist-info"
    files = {f"wares/part{number}.py": f"N = {number}\n" * 50 for number in range(40)}
    if version == "1.0":
        files |= {f"wares/gone/part{number}.py": "" for number in range(5)}
    files |= {
        "wares/__init__.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: wares\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"wares-{version}-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)


def _git(folder: Path, *words: str) -> str:
    return _run(folder, "git", "-c", "safe.directory=*", "-c", "gc.autoDetach=false", *words)


def _run(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, env=_ENVIRON, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout
