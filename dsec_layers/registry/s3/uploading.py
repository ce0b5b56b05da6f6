"""Large objects, several at once, with bounded memory; visible when all of it was right.

What fits in one part is sent whole when its digest has been found right, which spares the requests
around parts. Of others the parts are sent while the blob is still being hashed. Only after its
digest has been found right is the upload completed; whatever goes wrong before, it is aborted and
its parts are gone.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from dsec_layers.errors import DsecError, StoreError
from dsec_layers.registry.s3.bucket import Bucket, md5
from dsec_layers.registry.s3.buffers import Buffers
from dsec_layers.registry.s3.failures import code_of

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import (
        CompletedPartTypeDef,
        ListMultipartUploadsOutputTypeDef,
    )

PART_BYTES: Final = 32 << 20
SENDERS: Final = 4
BUFFERS: Final = SENDERS + 1  # one is filled meanwhile
_LEAST_PART_BYTES: Final = 5 << 20
_MAX_PARTS: Final = 10_000
_log = logging.getLogger(__name__)


class Uploads:
    """Sends the parts of all uploads of one store. Safe for many threads.

    All together hold `BUFFERS` parts in memory: `SENDERS` on their way, the others being filled.
    """

    def __init__(self, bucket: Bucket, part_bytes: int = PART_BYTES) -> None:
        self._bucket = bucket
        self.part_bytes = part_bytes
        self._buffers = Buffers(BUFFERS)
        self._pool = ThreadPoolExecutor(SENDERS, thread_name_prefix="s3-upload")

    def send(self, name: str, size: int, pieces: Iterator[bytes], *, absent: bool) -> None:
        """Write an object of `size` bytes, more than none; `pieces` raises when they are wrong.

        With `absent` Refused is raised when there is such an object by then.
        """
        if size <= self.part_bytes:
            self._send_whole(name, size, pieces, absent=absent)
            return
        part_bytes = _part_bytes(size, self.part_bytes)
        upload = self._begin(name)
        running: list[Future[CompletedPartTypeDef]] = []
        try:
            for number, part in enumerate(self._buffers.parts(pieces, part_bytes), 1):
                sent = self._pool.submit(self._send, name, upload, number, part)
                sent.add_done_callback(lambda _, part=part: self._buffers.give_back(part))  # type: ignore[misc]
                running.append(sent)
                _raise_failed(running)
            parts = [each.result() for each in running]
            self._complete(name, size, upload, parts, absent=absent)
        except BaseException:
            for each in running:
                each.cancel()
            wait(running)
            with contextlib.suppress(DsecError):  # `remove_stale` comes by later
                self._abort(name, upload)
            raise

    def remove_stale(self, older_than_s: float) -> int:
        """Abort the uploads of writers that died, and return how many there were."""
        bucket, removed = self._bucket, 0
        limit = time.time() - older_than_s
        for key, upload, began in list(self._under_way()):
            if began < limit:
                _log.info("aborting the upload of %s, which nobody goes on with", key)
                self._abort(key.removeprefix(bucket.location.prefix), upload)
                removed += 1
        return removed

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _send_whole(self, name: str, size: int, pieces: Iterator[bytes], *, absent: bool) -> None:
        # with room for one byte more it ends when the pieces do, which have been compared by then
        for part in self._buffers.parts(pieces, size + 1):
            try:
                self._bucket.put(name, part, absent=absent)
            finally:
                self._buffers.give_back(part)

    def _begin(self, name: str) -> str:
        bucket = self._bucket
        return bucket.call(
            f"cannot write {name}",
            lambda: bucket.client.create_multipart_upload(
                Bucket=bucket.location.bucket, Key=bucket.key(name)
            )["UploadId"],
        )

    def _send(self, name: str, upload: str, number: int, part: bytearray) -> CompletedPartTypeDef:
        bucket = self._bucket
        answer = bucket.call(
            f"cannot write part {number} of {name}",
            lambda: bucket.client.upload_part(
                Bucket=bucket.location.bucket,
                Key=bucket.key(name),
                UploadId=upload,
                PartNumber=number,
                Body=part,  # type: ignore[arg-type]  # boto3 takes it, its stubs do not know
                ContentMD5=md5(part),
            ),
        )
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def _complete(
        self, name: str, size: int, upload: str, parts: list[CompletedPartTypeDef], *, absent: bool
    ) -> None:
        bucket = self._bucket
        condition = {"IfNoneMatch": "*"} if absent else {}

        def ask() -> None:
            bucket.client.complete_multipart_upload(
                Bucket=bucket.location.bucket,
                Key=bucket.key(name),
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                **condition,  # type: ignore[arg-type]
            )

        def ask_or_find() -> None:
            try:
                ask()
            except ClientError as error:
                # an earlier attempt, whose answer got lost, may have completed it
                if code_of(error) != "NoSuchUpload" or bucket.head(name) is None:
                    raise

        bucket.guarded(f"cannot write {name}", ask_or_find)
        found = bucket.head(name)
        if found is None or found.size != size:
            bucket.delete(name)
            there = found.size if found else 0
            raise StoreError(f"{bucket.url} has kept {there} of the {size} bytes of {name}")

    def _abort(self, name: str, upload: str) -> None:
        bucket = self._bucket

        def ask() -> None:
            try:
                bucket.client.abort_multipart_upload(
                    Bucket=bucket.location.bucket, Key=bucket.key(name), UploadId=upload
                )
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

        bucket.call(f"cannot abort the upload of {name}", ask)

    def _under_way(self) -> Iterator[tuple[str, str, float]]:
        bucket, markers = self._bucket, dict[str, str]()

        def ask() -> ListMultipartUploadsOutputTypeDef | None:
            try:
                return bucket.client.list_multipart_uploads(
                    Bucket=bucket.location.bucket,
                    Prefix=bucket.location.prefix,
                    **markers,  # type: ignore[arg-type]
                )
            except ClientError as error:
                if code_of(error) == "NoSuchUpload":  # so rclone says that there are none
                    return None
                raise

        while page := bucket.call("cannot list uploads", ask):
            for each in page.get("Uploads", ()):
                yield each["Key"], each["UploadId"], each["Initiated"].timestamp()
            if not page.get("IsTruncated"):
                return
            markers = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }


def _part_bytes(size: int, most: int) -> int:
    """The size of each part but the last: the same for all, lest the last be tiny."""
    count = min(-(-size // most), _MAX_PARTS)
    return max(_LEAST_PART_BYTES, -(-size // count))


def _raise_failed(running: list[Future[CompletedPartTypeDef]]) -> None:
    for each in running:
        if each.done():
            each.result()
