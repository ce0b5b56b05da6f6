"""Python environments for benchmarks: a base with pip, wheels of a scientific stack, a program.

All is fetched once with this machine's settings and kept below DSEC_BENCH_STATE (default .bench),
so that no network is measured:

    <state>/python/debian.tar     a root file system with Python and pip
    <state>/python/wheels/        wheels of `LARGE`
    <state>/python/image/         an OCI layout of two layers with all of them installed, 1 GB
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
STATE: Final = Path(os.environ.get("DSEC_BENCH_STATE", ROOT / ".bench"))
FOLDER: Final = STATE / "python"
BASE: Final = "base/bench/python:v1"
IMAGE: Final = FOLDER / "image"
SMALL: Final = ("numpy==2.2.6", "scipy==1.15.3", "pandas==2.3.0", "scikit-learn==1.7.0")
LARGE: Final = (
    *(*SMALL, "matplotlib==3.10.3", "sympy==1.14.0", "networkx==3.5", "numba==0.61.2"),
    *("pyarrow==20.0.0", "polars==1.31.0"),
)
_DOCKERFILE: Final = f"""\
FROM {BASE}
ENV PIP_BREAK_SYSTEM_PACKAGES=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /app
COPY requirements.txt .
RUN --mount=type=bind,source=wheels,target=/wheels \\
    python3 -m pip install --no-index --find-links /wheels --requirement requirements.txt
COPY app .
RUN python3 -m compileall -q .
CMD ["python3", "-m", "app"]
"""
# Without bytecode every start of the program would compile it anew.
_SLOWING: Final = ("PYTHONDONTWRITEBYTECODE",)


def dsec(home: Path, *words: str | Path) -> None:
    """Run our command line on `home`. Raises CalledProcessError."""
    program = Path(sys.executable).parent / "dsec-layers"
    environ = {name: value for name, value in os.environ.items() if name not in _SLOWING}
    command = [program, "--home", home, "--json", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environ)


def make_context(folder: Path, requirements: Sequence[str]) -> None:
    """A context whose Dockerfile installs `requirements` and a program of 200 modules."""
    folder.mkdir()
    (folder / "Dockerfile").write_text(_DOCKERFILE)
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in requirements))
    (folder / "wheels").mkdir()
    for wheel in wheels(requirements):
        shutil.copy(wheel, folder / "wheels")
    (folder / "app").mkdir()
    for number in range(200):
        lines = "".join(f"def f{each}():\n    return {each}\n" for each in range(50))
        (folder / f"app/module{number}.py").write_text(lines)


def wheels(requirements: Sequence[str]) -> list[Path]:
    """The wheels of these requirements and of what they need, fetched when missing."""
    folder = FOLDER / "wheels"
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = FOLDER / "wheels.part"
        shutil.rmtree(part, ignore_errors=True)
        _pip("download", "--dest", part, "--python-version", "3.11", *LARGE)
        part.rename(folder)
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        offline = ("--no-index", "--find-links", folder)
        _pip("download", "--dest", name, "--python-version", "3.11", *offline, *requirements)
        return sorted(folder / path.name for path in Path(name).iterdir())


def debian() -> Path:
    """The root file system with pip, made when missing."""
    archive = FOLDER / "debian.tar"
    if not archive.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = FOLDER / "debian.part.tar"
        options = ("--variant=minbase", "--include=python3-pip")
        subprocess.run(["mmdebstrap", "--quiet", *options, "bookworm", part], check=True)
        part.rename(archive)
    return archive


def image() -> Path:
    """The OCI layout, tagged `v1`, made when missing."""
    if not IMAGE.exists():
        archive = debian()
        with tempfile.TemporaryDirectory(dir=FOLDER) as name:
            home, context = Path(name) / "home", Path(name) / "context"
            make_context(context, LARGE)
            dsec(home, "import", archive, BASE)
            try:
                dsec(home, *build_words(context, "workspace/bench/science:v1"))
                dsec(
                    home, "compose", BASE, "workspace/bench/science:v1", "-t", "env/bench/image:v1"
                )
                dsec(home, "export", "env/bench/image:v1", f"oci:{name}/image:v1")
            finally:
                dsec(home, "daemon", "stop", "--force")
            (Path(name) / "image").rename(IMAGE)
    return IMAGE


def build_words(context: Path, reference: str) -> tuple[str | Path, ...]:
    """The command that builds a context."""
    return ("build", context, "-f", context / "Dockerfile", "-t", reference)


def _pip(command: str, *words: str | Path) -> None:
    options = ("--quiet", "--disable-pip-version-check", "--only-binary=:all:")
    subprocess.run([sys.executable, "-m", "pip", command, *options, *words], check=True)
