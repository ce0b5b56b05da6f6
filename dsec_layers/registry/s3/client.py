"""The client of a location: credentials by the chain of boto3, time limits, addressing.

boto3 itself adds objects and transfers, which nothing here uses, and its start takes long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, cast

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from dsec_layers.errors import InvalidInputError
from dsec_layers.registry.connections import Connections
from dsec_layers.registry.s3.location import Location
from dsec_layers.registry.s3.models import Models

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

CONNECTIONS: Final = 64
CONNECT_TIMEOUT_S: Final = 10
READ_TIMEOUT_S: Final = 60
_DEFAULT_REGION: Final = "us-east-1"


def make_client(location: Location, connections: Connections | None = None) -> S3Client:
    """A client, for many threads, whose connections are among `connections`.

    Raises InvalidInputError for an unknown profile and the like.
    """
    try:
        made = botocore.session.Session(profile=location.profile or None)
        made.register_component("data_loader", Models())
        region = location.region or made.get_config_variable("region")
        client = made.create_client(
            "s3",
            endpoint_url=location.endpoint or None,
            region_name=region or _DEFAULT_REGION,
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
    if connections is not None:
        # Nothing public leads to them; the tests of silent servers tell when this is another.
        session = client._endpoint.http_session  # type: ignore[attr-defined]
        pools = session._pool_classes_by_scheme
        pools.update({scheme: connections.among(pool) for scheme, pool in pools.items()})
    return cast("S3Client", client)


def _style(location: Location) -> Literal["auto", "path", "virtual"]:
    """A server of one's own seldom has a name for each bucket."""
    if location.style == "path" or (location.endpoint and not location.style):
        return "path"
    return "virtual" if location.style else "auto"
