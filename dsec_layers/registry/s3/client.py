"""The boto3 client of a location: credentials by boto3's chain, time limits, addressing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from dsec_layers.errors import InvalidInputError
from dsec_layers.registry.s3.location import Location

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

CONNECTIONS: Final = 64
CONNECT_TIMEOUT_S: Final = 10
READ_TIMEOUT_S: Final = 60
_DEFAULT_REGION: Final = "us-east-1"


def make_client(location: Location) -> S3Client:
    """A client, for many threads. Raises InvalidInputError for an unknown profile and the like."""
    try:
        session = boto3.session.Session(profile_name=location.profile or None)
        return session.client(
            "s3",
            endpoint_url=location.endpoint or None,
            region_name=location.region or session.region_name or _DEFAULT_REGION,
            verify=location.ca or None,
            config=Config(
                signature_version=botocore.UNSIGNED if location.anonymous else "s3v4",
                # a body is told apart from another by Content-MD5, a second hash adds nothing
                s3={"addressing_style": _style(location), "payload_signing_enabled": False},
                max_pool_connections=CONNECTIONS,
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                tcp_keepalive=True,
                # asking again is ours: it has to obey Retry-After and to cover bodies
                retries={"total_max_attempts": 1, "mode": "standard"},
                # newer checksums in trailers are not understood everywhere; Content-MD5 is
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    except (BotoCoreError, ValueError) as error:
        raise InvalidInputError(f"cannot use {location.url}: {error}") from error


def _style(location: Location) -> Literal["auto", "path", "virtual"]:
    """A server of one's own seldom has a name for each bucket."""
    if location.style == "path" or (location.endpoint and not location.style):
        return "path"
    return "virtual" if location.style else "auto"
