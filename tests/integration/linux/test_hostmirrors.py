"""Real package managers on a minimal Debian that knows nothing of this machine's mirrors."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.linux import container, hostmirrors
from dsec_layers.linux.hostloan import PLACE
from dsec_layers.linux.ocispec import Command
from tests.support.rootfs import make_rootfs
from tests.support.roots import Root, mounted_root

pytestmark = [pytest.mark.root, pytest.mark.overlay, pytest.mark.oci]


def run(root: Root, folder: Path, script: str) -> str:
    loan = hostmirrors.lend(root.path, folder / "lent")
    output: list[bytes] = []
    command = Command(rootfs=root.path, argv=("sh", "-ec", script), env=loan.env, binds=loan.binds)
    finished = container.run(command, folder / "run", on_output=output.append)
    text = b"".join(output).decode(errors="replace")
    assert finished.status == 0, text
    shutil.rmtree(folder / "lent")
    return text


def test_lent_files_are_read_only_and_leave_no_trace(tmp_path: Path) -> None:
    make_rootfs(tmp_path / "layer")
    with mounted_root(tmp_path / "m", [tmp_path / "layer"]) as root:
        text = run(root, tmp_path, f"ls {PLACE}; cat $SSL_CERT_FILE; ! touch {PLACE}/x; echo done")
        assert text.endswith("done\n")
        assert root.written() == set()


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This machine's own release, minimal, with a source list that leads nowhere."""
    if shutil.which("mmdebstrap") is None:
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("mmdebstrap is not installed")
    release = next(
        (
            line.partition("=")[2]
            for line in Path("/etc/os-release").read_text().splitlines()
            if line.startswith("VERSION_CODENAME=")
        ),
        "",
    )
    root = tmp_path_factory.mktemp("debian") / "root"
    subprocess.run(
        # Its apt, too, asks a mirror again that fails for a moment.
        [
            *("mmdebstrap", "--variant=minbase", "--quiet", '--aptopt=Acquire::Retries "5"'),
            *(release, str(root)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    nowhere = "http://nowhere.invalid/os"
    (root / "etc/apt/sources.list").write_text(f"deb {nowhere} {release} main\n")
    (root / "etc/apt/sources.list.d/debian.sources").write_text(
        f"Types: deb\nURIs: {nowhere}\nSuites: {release}-updates\nComponents: main\n"
    )
    yield root
    shutil.rmtree(root)


@pytest.fixture
def debian_root(tmp_path: Path, debian: Path) -> Iterator[Root]:
    with mounted_root(tmp_path / "mounted", [debian]) as root:
        yield root


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_apt_installs_from_the_host_s_sources(debian_root: Root, tmp_path: Path) -> None:
    script = (
        "apt-get update; apt-get install -y --no-install-recommends hello ca-certificates; hello"
    )
    text = run(debian_root, tmp_path, script)
    assert text.endswith("Hello, world!\n")
    assert "nowhere" not in text
    assert traces(debian_root) == []
    # the certificates of the package, which replaces the file by renaming
    assert (debian_root.upper / "etc/ssl/certs/ca-certificates.crt").stat().st_size > 100_000
    assert not (debian_root.upper / "etc/apt").exists()


def traces(root: Root) -> list[str]:
    """Paths and texts in the upper that name the place of lent files, and lent paths."""
    found = [path for path in root.written() if path.startswith(("dev", "proc", "sys", "run"))]
    for path in root.written():
        file = root.upper / path
        if file.is_file() and not file.is_symlink() and PLACE.encode() in file.read_bytes():
            found.append(path)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pip_downloads_with_the_host_s_settings(debian_root: Root, tmp_path: Path) -> None:
    script = (
        "apt-get update; apt-get install -y --no-install-recommends python3-pip;"
        "pip download --no-deps --no-cache-dir -d /tmp/wheels packaging; ls /tmp/wheels"
    )
    assert "packaging-" in run(debian_root, tmp_path, script).splitlines()[-1]
    assert list((debian_root.upper / "tmp/wheels").glob("packaging-*.whl"))
    assert not any(path.startswith("etc/pip") for path in debian_root.written())
