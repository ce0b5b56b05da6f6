"""What is committed names no machine, no host of packages and no unfinished work."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Character classes keep these patterns from matching themselves.
FORBIDDEN = {
    "a path of one machine": r"/wor[k]/|/far[m]/|[.]librar[y]/|/tmp/dse[c]\b",
    "a host of packages": r"https?:/[/][^\s\"']*(pypi|pythonhosted|npmjs|debian|artifact)",
    "unfinished work": r"\b(TOD[O]|FIXM[E]|XX[X])\b",
}


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True
    )
    if listed.returncode:
        pytest.skip("not a git repository")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what], re.IGNORECASE if what == "a host of packages" else 0)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in committed()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_lock_holds_versions_and_nothing_else() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+")
    assert not [line for line in lines if line[:1] != "#" and not pinned.fullmatch(line)]


def test_the_packages_are_listed_once_and_in_words_that_apt_takes() -> None:
    lines = (ROOT / "packages.txt").read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    assert len(set(names)) == len(names)
    package = r"[a-z0-9][a-z0-9.+-]+"
    assert all(re.fullmatch(rf"{package}( \| {package})*", name) for name in names)
