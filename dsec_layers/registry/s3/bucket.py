"""Objects below one prefix of a bucket: single requests, asked again with bounds, our errors.

Names are relative to the prefix. A missing object is None; all that is neither that nor an answer
is StoreError, or NoSpaceError.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from botocore.exceptions import ClientError

from dsec_layers.errors import CorruptError, StoreError
from dsec_layers.registry.patience import Patience
from dsec_layers.registry.s3.failures import code_of, explained, judge, status_of

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import GetObjectOutputTypeDef

    from dsec_layers.registry.connections import Connections
    from dsec_layers.registry.s3.location import Location

T = TypeVar("T")
_GONE: Final = ("NoSuchKey", "NotFound", "404")


class Refused(Exception):  # noqa: N818 - an answer that is asked for, not a failure
    """The condition of a write did not hold."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object: its name, size in bytes, entity tag, and when it was written, on its server."""

    name: str
    size: int
    etag: str
    modified_s: float
    metadata: dict[str, str] = field(default_factory=dict)


class Bucket:
    """Safe for many threads. `connections` are those of `client`, kept for as long."""

    def __init__(
        self,
        client: S3Client,
        location: Location,
        patience: Patience,
        connections: Connections | None = None,
    ) -> None:
        self.client = client
        self.connections = connections
        self.location = location
        self.patience = patience
        self.url = location.url

    def key(self, name: str) -> str:
        """The whole key."""
        return self.location.prefix + name

    def call(self, doing: str, operation: Callable[[], T]) -> T:
        """Do a request that may be repeated. Raises StoreError or NoSpaceError."""
        with explained(f"{doing} in {self.url}"):
            return self.patience.call(operation, judge)

    def head(self, name: str) -> Found | None:
        """What is known of an object without reading it."""

        def ask() -> Found | None:
            try:
                got = self.client.head_object(Bucket=self.location.bucket, Key=self.key(name))
            except ClientError as error:
                if status_of(error) == 404:
                    return None
                raise
            modified_s = got["LastModified"].timestamp()
            return Found(name, got["ContentLength"], got["ETag"], modified_s, got["Metadata"])

        return self.call(f"cannot look at {name}", ask)

    def open(self, name: str, ranged: str = "") -> GetObjectOutputTypeDef | None:
        """One GET, not repeated. Raises the errors of boto3, or StoreError for half an answer."""
        more = {"Range": ranged} if ranged else {}
        try:
            answer = self.client.get_object(
                Bucket=self.location.bucket,
                Key=self.key(name),
                **more,  # type: ignore[arg-type]
            )
        except ClientError as error:
            if code_of(error) in _GONE:
                return None
            raise
        if "ContentLength" not in answer:
            answer["Body"].close()
            raise StoreError(f"{self.url} does not tell how long {name} is")
        return answer

    def get(self, name: str, limit: int) -> tuple[bytes, Found] | None:
        """A small object, whole. Raises CorruptError when it has more than `limit` bytes."""

        def ask() -> tuple[bytes, Found] | None:
            answer = self.open(name)
            if answer is None:
                return None
            with contextlib.closing(answer["Body"]) as body:
                if answer["ContentLength"] > limit:
                    raise CorruptError(f"{name} in {self.url} has more than {limit} bytes")
                data = body.read()
            modified_s = answer["LastModified"].timestamp()
            return data, Found(name, len(data), answer["ETag"], modified_s, answer["Metadata"])

        return self.call(f"cannot read {name}", ask)

    def put(
        self,
        name: str,
        data: bytes | bytearray,
        *,
        absent: bool = False,
        etag: str = "",
        metadata: dict[str, str] | None = None,
    ) -> None:
        """Write an object whole.

        Only if there is none (`absent`) or the one with this `etag` stands there, else Refused;
        also when an earlier attempt, whose answer got lost, has written it.
        """
        condition = {"IfNoneMatch": "*"} if absent else {"IfMatch": etag} if etag else {}

        def ask() -> None:
            self.client.put_object(
                Bucket=self.location.bucket,
                Key=self.key(name),
                Body=data,  # type: ignore[arg-type]  # boto3 takes it, its stubs do not know
                ContentMD5=md5(data),
                Metadata=metadata or {},
                **condition,  # type: ignore[arg-type]
            )

        self.guarded(f"cannot write {name}", ask)

    def guarded(self, doing: str, operation: Callable[[], None]) -> None:
        """Do a conditional write. Raises Refused when its condition does not hold."""

        def ask() -> None:
            try:
                operation()
            except ClientError as error:
                if status_of(error) == 412:
                    raise Refused from error
                raise

        self.call(doing, ask)

    def delete(self, name: str) -> None:
        """Remove an object; not an error when it is not there."""

        def ask() -> None:
            try:
                self.client.delete_object(Bucket=self.location.bucket, Key=self.key(name))
            except ClientError as error:
                if code_of(error) not in _GONE:
                    raise

        self.call(f"cannot delete {name}", ask)

    def touch(self, name: str) -> bool:
        """Make the time of an object now, by copying it onto itself; False when it is not there."""
        source = {"Bucket": self.location.bucket, "Key": self.key(name)}

        def ask() -> bool:
            try:
                self.client.copy_object(
                    Bucket=self.location.bucket,
                    Key=self.key(name),
                    CopySource=source,  # type: ignore[arg-type]
                    MetadataDirective="REPLACE",
                )
            except ClientError as error:
                if code_of(error) in _GONE:
                    return False
                raise
            return True

        return self.call(f"cannot renew {name}", ask)

    def list(self, folder: str) -> Iterator[Found]:
        """The objects whose names begin with `folder`, in the order of their keys, page by page."""
        start, more = len(self.location.prefix), dict[str, str]()
        while True:
            page = self.call(
                f"cannot list {folder}",
                lambda more=more: self.client.list_objects_v2(  # type: ignore[misc]
                    Bucket=self.location.bucket, Prefix=self.key(folder), **more
                ),
            )
            for each in page.get("Contents", ()):
                modified_s = each["LastModified"].timestamp()
                yield Found(each["Key"][start:], each["Size"], each.get("ETag", ""), modified_s)
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}


def md5(data: bytes | bytearray) -> str:
    """What a server compares with what has arrived, as the header Content-MD5 has it."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
