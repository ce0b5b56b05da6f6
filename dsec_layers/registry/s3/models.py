"""The descriptions of S3 that botocore works by, read fast.

Left alone, it goes through the folders of all of its hundreds of services, and turns each object of
JSON into one of Python by Python.
"""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path
from typing import Any

import msgspec
from botocore.loaders import JSONFileLoader, Loader


class _Files(JSONFileLoader):
    """Reads `<path>.json` or `<path>.json.gz`."""

    def load_file(self, file_path: str) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(Path(f"{file_path}.json").read_bytes())
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(gzip.decompress(Path(f"{file_path}.json.gz").read_bytes()))
        return None


class Models(Loader):
    """What botocore calls its data loader, for S3 alone."""

    FILE_LOADER_CLASS = _Files

    def list_available_services(self, type_name: str) -> list[str]:
        """All that it has descriptions of."""
        return ["s3"]
