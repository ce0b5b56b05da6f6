"""Moving much takes little memory, and many threads at once no more than a few."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import pytest

from tests.support.cli import ROOT
from tests.support.s3servers import S3Server

PACKS, PACK_BYTES = 6, 64 << 20
MOST_BYTES = 192 << 20


@pytest.mark.slow
@pytest.mark.usefixtures("aws")
def test_384_mib_take_less_than_half_of_that(seaweed: S3Server) -> None:
    url = seaweed.url(f"memory/{uuid4()}")
    words = [url, str(PACKS), str(PACK_BYTES)]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.moving_much", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    before, after = map(int, ran.stdout.split())
    assert after - before < MOST_BYTES
