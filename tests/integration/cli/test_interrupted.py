"""Imports and builds that a signal ends: at once, with one line, and without a trace."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.cli import BASE, Cli, pids_with, tar_of

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci]

PATIENCE_S = 30  # a machine may be busy; alone it takes a tenth of a second
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", SIGNALS)
def test_an_import_that_waits_for_its_archive(bare: Cli, number: signal.Signals) -> None:
    with bare.start("import", "-", "base/x:1") as child:
        assert child.stdin is not None
        assert child.stderr is not None
        # More than a pipe holds: when this is written, the import has begun to read.
        child.stdin.write(tar_of({"file": os.urandom(1 << 20)})[: 1 << 20])
        child.stdin.flush()
        child.send_signal(number)
        assert child.stderr.read() == f"error: ended by {number.name}\n".encode()
    assert child.returncode == 128 + number
    assert bare.tags() == []
    assert bare.leftovers() == []


@pytest.mark.parametrize("number", SIGNALS)
def test_an_import_that_is_packing(bare: Cli, number: signal.Signals) -> None:
    source = bare.folder / "source"
    source.mkdir()
    for megabytes in (50, 100, 200, 400):  # a machine may be so fast that all is packed before
        for count in range(megabytes):
            (source / f"f{count:03}").write_bytes(os.urandom(1 << 20))
        with bare.start("--progress", "json", "import", source, "base/x:1") as child:
            assert child.stderr is not None
            making = bare.home / "making"
            while not list(making.glob("pack-*/*/*")) and child.poll() is None:
                os.sched_yield()
            child.send_signal(number)
            said = child.stderr.read()
        if child.returncode != 0:
            break
        bare("untag", "base/x:1")
    assert child.returncode == 128 + number
    assert b'"Interrupted"' in said.splitlines()[-1]
    assert bare.tags() == []
    assert bare.leftovers() == []


@pytest.mark.parametrize("number", SIGNALS)
def test_an_import_that_waits_to_be_tagged(bare: Cli, number: signal.Signals) -> None:
    """All is packed, and the tag is locked by another: there is no tag without the last step."""
    folder = bare.bench.local.root / "refs/base/x"
    folder.mkdir(parents=True)
    (folder / "@1.lock").write_text("somebody else")
    with bare.start("import", "-", "base/x:1") as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(tar_of({"file": b"data"}))
        child.stdin.close()
        while not list(folder.glob("tmp-*")) and child.poll() is None:
            os.sched_yield()
        child.send_signal(number)
        assert child.stderr.read() == f"error: ended by {number.name}\n".encode()
    assert child.returncode == 128 + number
    assert bare.tags() == []
    (folder / "@1.lock").unlink()
    assert bare.leftovers() == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_build_in_the_middle_of_a_step(cli: Cli, number: signal.Signals) -> None:
    mark = f"{3_000_000 + os.getpid()}"
    folder = _context(cli, f"RUN echo half > /half; sleep {mark} & echo ready; sleep {mark}\n")
    with cli.start("build", folder, "-t", "base/x:1") as child:
        assert child.stderr is not None
        assert b"step 1/1" in child.stderr.readline()
        assert child.stderr.readline() == b"1/1 | ready\n"
        child.send_signal(number)
        child.send_signal(number)  # impatience must not break the cleaning
        assert child.stderr.read() == f"error: ended by {number.name}\n".encode()
    assert child.returncode == 128 + number
    assert pids_with(mark) == []
    assert cli.tags() == [BASE]
    assert cli.leftovers() == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_build_in_the_middle_of_two_steps(cli: Cli, number: signal.Signals) -> None:
    mark = f"{5_000_000 + os.getpid()}"
    endless = f"RUN sleep {mark} & echo ready; sleep {mark}\n"
    folder = _context(
        cli, f"{endless}FROM {BASE} AS other\nRUN true\n{endless}COPY --from=0 / /x\n"
    )
    with cli.start("build", folder, "-t", "base/x:1", "--jobs", "2") as child:
        assert child.stderr is not None
        ready = 0
        while ready < 2:
            ready += child.stderr.readline().endswith(b" | ready\n")
        child.send_signal(number)
        began = time.monotonic()
        assert child.stderr.read() == f"error: ended by {number.name}\n".encode()
    assert time.monotonic() - began < PATIENCE_S
    assert child.returncode == 128 + number
    assert pids_with(mark) == []
    assert cli.tags() == [BASE]
    assert cli.leftovers() == []


def test_a_build_goes_on_after_a_kill(cli: Cli) -> None:
    """What a killed build left is swept by the next one."""
    mark = f"{4_000_000 + os.getpid()}"
    folder = _context(cli, f"RUN test -e /go || {{ echo ready; sleep {mark}; }}\n")
    with cli.start("build", folder, "-t", "base/x:1") as child:
        assert child.stderr is not None
        while child.stderr.readline() != b"1/1 | ready\n":
            pass
        child.kill()
    layerfile = folder / "Layerfile"
    layerfile.write_text(layerfile.read_text().replace("RUN test", "RUN touch /go; test"))
    cli("build", folder, "-t", "base/x:1")
    assert cli.leftovers() == []


def test_an_import_goes_on_after_a_kill(bare: Cli) -> None:
    with bare.start("import", "-", "base/x:1") as child:
        assert child.stdin is not None
        child.stdin.write(tar_of({"file": os.urandom(1 << 20)})[: 1 << 20])
        child.stdin.flush()
        child.kill()
    assert list((bare.home / "making").iterdir())
    bare("import", "-", "base/x:1", stdin=tar_of({"file": b"data"}))
    assert bare.leftovers() == []
    assert bare("cat", "base/x:1", "/file") == "data"


def _context(cli: Cli, steps: str) -> Path:
    folder = cli.folder / "context"
    folder.mkdir()
    (folder / "Layerfile").write_text(f"LAYER base x\nFROM {BASE}\n{steps}")
    return folder
