"""A user who may not mount is told so; what needs no root works for everybody."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dsec_layers.errors import CapabilityMissingError, StoreError
from tests.support.cli import BASE, Cli, Ran, tar_of

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse]

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")


@pytest.fixture
def user(cli: Cli) -> Iterator[Cli]:
    """The command line of nobody, over a home of its own."""
    probe = subprocess.run(
        [*NOBODY, sys.executable, "-c", "import dsec_layers"], capture_output=True, check=False
    )
    if probe.returncode:
        pytest.skip("nobody may not read this Python")
    folder = cli.folder / "user"
    folder.mkdir()
    cli.folder.chmod(0o755)
    made = Cli(folder, {})
    made.pull(cli.bench.local)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    yield made
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "words",
    [
        ("mount", BASE, "TARGET"),
        ("umount", "TARGET"),
        ("run", BASE, "--", "true"),
        ("build", "CONTEXT"),
        ("verify", BASE),
        ("daemon", "stop"),
    ],
)
def test_what_needs_root(user: Cli, words: tuple[str, ...]) -> None:
    context = user.folder / "context"
    context.mkdir()
    (context / "Layerfile").write_text(f"LAYER base x\nFROM {BASE}\nRUN true\n")
    places = {"TARGET": str(user.folder / "mnt"), "CONTEXT": str(context)}
    before = sorted(user.folder.rglob("*"))
    ran = _nobody(user, *(places.get(word, word) for word in words))
    assert ran.status == CapabilityMissingError.exit_code, ran
    assert "root" in ran.error
    assert ran.hint.startswith("run as root with CAP_SYS_ADMIN")
    assert ("--rootless" in ran.hint) == (words[0] == "mount")
    assert sorted(user.folder.rglob("*")) == before


def test_what_needs_no_root(user: Cli) -> None:
    assert BASE in _nobody(user, "ls").text
    assert "/etc/passwd" in _nobody(user, "tree", BASE).text
    assert _nobody(user, "cat", BASE, "/etc/group").text.startswith("root:")
    assert _nobody(user, "verify", "--stored-only", BASE).status == 0
    assert _nobody(user, "mount").text == "REFERENCE  TARGET  MODE\n"
    tar = tar_of({"file": b"data"})
    assert _nobody(user, "import", "-", "base/mine:1", stdin=tar).status == 0
    assert _nobody(user, "compose", "base/mine:1", "-t", "env/mine").status == 0
    url = f"dir://{user.folder}/other"
    assert _nobody(user, "push", "env/mine", url).status == 0
    assert _nobody(user, "untag", "env/mine").status == 0
    assert _nobody(user, "pull", "env/mine", url).status == 0


def test_a_home_of_somebody_else(user: Cli) -> None:
    ran = user.fails(StoreError, "ls", home=user.folder.parent / "other", prefix=NOBODY)
    assert "Permission denied" in ran.error
    assert ran.hint
    archive = user.folder / "archive"
    archive.write_bytes(tar_of({"file": b"data"}))
    archive.chmod(0o600)
    os.chown(archive, 0, 0)
    assert (
        str(archive)
        in user.fails(CapabilityMissingError, "import", archive, "base/x:1", prefix=NOBODY).error
    )


def _nobody(user: Cli, *words: str, stdin: bytes = b"") -> Ran:
    return user.run(*words, stdin=stdin, prefix=NOBODY)
