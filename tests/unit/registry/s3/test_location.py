"""The URL of a store in a bucket."""

from __future__ import annotations

import pytest

from dsec_layers.errors import InvalidInputError
from dsec_layers.registry.s3.client import make_client
from dsec_layers.registry.s3.location import Location
from tests.support import s3servers


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://bucket", Location("bucket")),
        ("s3://bucket/", Location("bucket")),
        ("s3://bucket/a/b/", Location("bucket", "a/b/")),
        ("s3://bucket/with%20space", Location("bucket", "with space/")),
        ("s3://bucket/ü?region=eu-1", Location("bucket", "ü/", region="eu-1")),
        (
            "s3://b.c-d/x?endpoint=http://127.0.0.1:9000&style=virtual&profile=me&ca=/etc/ca.pem",
            Location(
                *("b.c-d", "x/", "http://127.0.0.1:9000"),
                style="virtual",
                profile="me",
                ca="/etc/ca.pem",
            ),
        ),
        ("s3://bucket/x?anonymous=1", Location("bucket", "x/", anonymous=True)),
        ("s3://bucket/x?anonymous=0", Location("bucket", "x/")),
        (
            "s3://bucket?endpoint=https%3A%2F%2Fs3.example.com",
            Location("bucket", endpoint="https://s3.example.com"),
        ),
    ],
)
def test_a_url_names_its_store_again(url: str, location: Location) -> None:
    assert Location.parse(url) == location
    assert Location.parse(location.url) == location


@pytest.mark.parametrize(
    "url",
    [
        *("s3://", "s3:///x", "s3://b", "s3://bücket/x", "s3://buck et/x", "s3://bucket:9/x"),
        *("s3://bucket/a//b", "s3://bucket/../x", "s3://bucket/x%0Ay", "s3://bucket/x#y"),
        *("s3://bucket/x?style=other", "s3://bucket/x?anonymous=yes", "s3://bucket/x?colour=red"),
        *("s3://bucket/x?region=a&region=b", "s3://bucket/x?region", "s3://[::/x"),
        *("s3://bucket?endpoint=example.com", "s3://bucket?endpoint=ftp://example.com"),
        *("s3://bucket?endpoint=http://me:secret@example.com", "s3://bucket?endpoint="),
    ],
)
def test_malformed_urls(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Location.parse(url)
    assert "s3://BUCKET/PREFIX" in (caught.value.hint or "")


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInputError) as caught:
        Location.parse("s3://AKID:verysecret@bucket/x")
    assert "verysecret" not in caught.value.message
    assert "AWS_SECRET_ACCESS_KEY" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("endpoint=http://s3.example.com", "http://s3.example.com/bucket/key"),
        ("endpoint=http://s3.example.com&style=path", "http://s3.example.com/bucket/key"),
        ("endpoint=http://s3.example.com&style=virtual", "http://bucket.s3.example.com/key"),
        ("region=eu-west-1&style=path", "https://s3.eu-west-1.amazonaws.com/bucket/key"),
    ],
)
def test_where_requests_go(more: str, expected: str) -> None:
    with s3servers.credentials():
        client = make_client(Location.parse(f"s3://bucket/x?{more}"))
        url = client.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "key"})
    assert url.partition("?")[0] == expected


def test_a_profile_that_is_not_there() -> None:
    with s3servers.credentials(), pytest.raises(InvalidInputError, match="nobody"):
        make_client(Location.parse("s3://bucket/x?profile=nobody"))
