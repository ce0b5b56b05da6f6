"""S3 servers of other makers on the loopback interface, started for tests and stopped by pid.

SeaweedFS keeps the rules of the protocol; rclone ignores the conditions of a PUT.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import botocore.config
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.ports import free_port, free_ports

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

KEY, SECRET = "testkey", "testsecret"
ENVIRON = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
BUCKET = "layers"
OPEN_BUCKET = "open"
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class S3Server:
    """A running server; `BUCKET` exists on it."""

    endpoint: str

    def url(self, prefix: str, **more: str) -> str:
        """The URL of a store."""
        words = "".join(f"&{name}={value}" for name, value in more.items())
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint}{words}"

    @property
    def client(self) -> S3Client:
        """To look at the server without our code."""
        return _client(self.endpoint)

    def keys(self, prefix: str) -> list[str]:
        """The keys of all objects below a prefix."""
        page = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        assert not page["IsTruncated"]
        return [each["Key"] for each in page.get("Contents", ())]

    def uploads(self, prefix: str) -> list[str]:
        """The keys of multipart uploads that have begun and not ended."""
        try:
            page = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix)
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchUpload":  # so rclone says that
                return []
            raise
        return [each["Key"] for each in page.get("Uploads", ())]


@functools.cache  # it takes long to make
def _client(endpoint: str) -> S3Client:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=botocore.config.Config(
            s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}
        ),
    )


def program(name: str) -> str:
    """A program that stands beside the interpreter; the test is skipped without it."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"needs {name} (see requirements.lock)")
    return str(path)


@contextlib.contextmanager
def seaweed(folder: Path) -> Iterator[S3Server]:
    """SeaweedFS with its files below `folder`."""
    master, volume, filer, s3, *inner = free_ports(8)
    identity = {"accessKey": KEY, "secretKey": SECRET}
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    public = [f"Read:{OPEN_BUCKET}", f"List:{OPEN_BUCKET}"]
    config = folder / "s3.json"
    config.write_text(
        json.dumps(
            {
                "identities": [
                    {"name": "admin", "credentials": [identity], "actions": everything},
                    {"name": "anonymous", "actions": public},
                ]
            }
        )
    )
    argv = [
        *(program("weed"), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-master.port={master}", f"-master.port.grpc={inner[0]}"),
        *(f"-volume.port={volume}", f"-volume.port.grpc={inner[1]}"),
        *(f"-filer.port={filer}", f"-filer.port.grpc={inner[2]}", f"-filer.localSocket={folder}/f"),
        *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={inner[3]}", f"-s3.localSocket={folder}/s"),
        *(f"-s3.config={config}", "-s3.iam=false", "-s3.autoCreateBucket=false"),
        *(
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-volume.max=100",
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
        ),
    ]
    with _running(argv, folder) as child:
        yield _ready(f"http://127.0.0.1:{s3}", child, folder)


@contextlib.contextmanager
def rclone(folder: Path) -> Iterator[S3Server]:
    """Rclone serving a folder below `folder`."""
    port = free_port()
    (folder / "data").mkdir()
    argv = [
        *(program("rclone"), "serve", "s3", f"--addr=127.0.0.1:{port}"),
        *(f"--auth-key={KEY},{SECRET}", f"--config={folder}/none.conf"),
        *(f"--cache-dir={folder}/cache", f"{folder}/data"),
    ]
    with _running(argv, folder) as child:
        yield _ready(f"http://127.0.0.1:{port}", child, folder)


@contextlib.contextmanager
def credentials(environ: Mapping[str, str] = ENVIRON) -> Iterator[None]:
    """The environment of a user who has these credentials and no other AWS settings."""
    patch = pytest.MonkeyPatch()
    for name in list(os.environ):
        if name.startswith("AWS_"):
            patch.delenv(name)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        patch.setenv(name, os.devnull)
    for name, value in environ.items():
        patch.setenv(name, value)
    try:
        yield
    finally:
        patch.undo()


@contextlib.contextmanager
def _running(argv: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    keep = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=keep
        )
        try:
            yield child
        finally:
            child.kill()
            child.wait()


def _ready(endpoint: str, child: subprocess.Popen[bytes], folder: Path) -> S3Server:
    """Wait until a bucket can be made and written."""
    server = S3Server(endpoint)
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            for bucket in (BUCKET, OPEN_BUCKET):
                server.client.create_bucket(Bucket=bucket)
                server.client.put_object(Bucket=bucket, Key="ready", Body=b"1")
                server.client.delete_object(Bucket=bucket, Key="ready")
        except (BotoCoreError, ClientError):
            if child.poll() is not None or time.monotonic() > deadline:
                pytest.fail((folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.1)
        else:
            return server
