"""What went wrong with a request: whether to ask again, and what to tell the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from dsec_layers.errors import DsecError, NoSpaceError, StoreError

_TRANSIENT_STATUS: Final = frozenset((408, 429, 500, 502, 503, 504))
# Bytes that changed on their way are sent again; so is what met another writer of the same key.
_TRANSIENT_CODES: Final = frozenset(
    (
        *("RequestTimeout", "SlowDown", "InternalError", "Throttling", "ThrottlingException"),
        *("BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", "MalformedXML"),
        *("ConditionalRequestConflict", "OperationAborted"),
    )
)
_FULL: Final = frozenset(("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"))
_TRANSIENT_ERRORS: Final = (
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ResponseParserError,
)
_HINTS: Final = {
    "NoSuchBucket": "make the bucket first, or check its name, the endpoint and the region",
    "SignatureDoesNotMatch": "the secret key is wrong, or the clock of this machine",
    "InvalidAccessKeyId": "the server does not know this access key",
}
_REFUSED: Final = (
    "check the credentials and their rights: reading, writing, and listing, without which a server "
    "does not tell what is missing from what is forbidden"
)
_CREDENTIALS: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, add profile=NAME to the URL, or anonymous=1"
)


def code_of(error: ClientError) -> str:
    """The server's word for the error, e.g. `NoSuchKey`; of a HEAD only the status."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    """The HTTP status."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def judge(error: Exception) -> float | None:
    """See `patience.Judge`."""
    if isinstance(error, ClientError):
        if status_of(error) in _TRANSIENT_STATUS or code_of(error) in _TRANSIENT_CODES:
            return _retry_after(error)
        return None
    if isinstance(error, SSLError) or not isinstance(error, _TRANSIENT_ERRORS):
        return None
    return 0.0


@contextlib.contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn the errors of boto3 in the block into StoreError or NoSpaceError."""
    try:
        yield
    except ClientError as error:
        raise _explain(error, doing) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StoreError(f"{doing}: {error}", hint=_CREDENTIALS) from error
    except (BotoCoreError, ResponseParserError) as error:
        raise StoreError(f"{doing}: {error}") from error


def _explain(error: ClientError, doing: str) -> DsecError:
    code, status = code_of(error), status_of(error)
    said = error.response.get("Error", {}).get("Message", "")
    text = f"{doing}: {status} {code if code != str(status) else ''}: {said}".replace(" : ", ": ")
    if status == 507 or code in _FULL:
        return NoSpaceError(text, hint="free some space there; what was begun has been removed")
    hint = _HINTS.get(code) or (_REFUSED if status in (401, 403) else None)
    return StoreError(text, hint=hint)


def _retry_after(error: ClientError) -> float:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return max(0.0, float(headers.get("retry-after", 0)))
    except ValueError:  # a date: clocks differ, and our own waits will do
        return 0.0
