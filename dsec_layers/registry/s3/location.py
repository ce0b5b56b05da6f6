"""The URL of a store in a bucket.

    s3://bucket/prefix?endpoint=https://s3.example.com&region=R&style=path&profile=P&anonymous=1&ca=F

All behind the bucket may be left out. There is no place in it for a secret: it is shown to others
and kept in files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from dsec_layers.errors import InvalidInputError

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_STYLES: Final = ("path", "virtual")
_PARAMETERS: Final = ("endpoint", "region", "style", "profile", "anonymous", "ca")
_HINT: Final = (
    "write s3://BUCKET/PREFIX, and behind a ? what is needed of endpoint=https://HOST, region=, "
    "style=path|virtual, profile=, anonymous=1, ca=FILE"
)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store is and how it is reached.

    `prefix` is empty or ends with a slash. Empty fields are left to boto3.
    """

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    style: str = ""
    profile: str = ""
    anonymous: bool = False
    ca: str = ""

    @classmethod
    def parse(cls, url: str) -> Location:
        """Parse a URL. Raises InvalidInputError."""
        try:
            parts = urlsplit(url)
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError as error:
            raise _malformed(url, str(error)) from error
        if "@" in parts.netloc:
            raise InvalidInputError(
                "credentials do not belong into the URL of a store",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile=",
            )
        if not _BUCKET.fullmatch(parts.netloc):
            raise _malformed(url, f"{parts.netloc!r} is no name of a bucket")
        values = _checked(url, given)
        return cls(
            bucket=parts.netloc,
            prefix=_prefix(url, parts),
            anonymous=values.pop("anonymous", "0") == "1",
            **values,
        )

    @property
    def url(self) -> str:
        """The same store again."""
        values = {name: getattr(self, name) for name in _PARAMETERS if getattr(self, name)}
        if self.anonymous:
            values["anonymous"] = "1"
        query = f"?{urlencode(values, safe=':/')}" if values else ""
        return f"s3://{self.bucket}/{quote(self.prefix)}".rstrip("/") + query


def _prefix(url: str, parts: SplitResult) -> str:
    prefix = unquote(parts.path).strip("/")
    bad = {"", ".", ".."} & set(prefix.split("/")) if prefix else set()
    if bad or parts.fragment or not prefix.isprintable():
        raise _malformed(url, "its prefix cannot be that of a store")
    return f"{prefix}/" if prefix else ""


def _checked(url: str, given: list[tuple[str, str]]) -> dict[str, str]:
    values = dict(given)
    unknown = values.keys() - set(_PARAMETERS)
    if unknown:
        raise _malformed(url, f"unknown parameters: {', '.join(sorted(unknown))}")
    if len(values) != len(given):
        raise _malformed(url, "a parameter is given twice")
    if values.get("style", "path") not in _STYLES:
        raise _malformed(url, f"style={values['style']}")
    if values.get("anonymous", "1") not in ("0", "1"):
        raise _malformed(url, f"anonymous={values['anonymous']}")
    _check_endpoint(url, values.get("endpoint"))
    return values


def _check_endpoint(url: str, endpoint: str | None) -> None:
    if endpoint is None:
        return
    parts = urlsplit(endpoint)
    plain = parts.scheme in ("http", "https") and parts.hostname and not parts.query
    if not plain or "@" in parts.netloc:
        raise _malformed(url, "its endpoint is not http://HOST or https://HOST")


def _malformed(url: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"not the URL of a store in a bucket: {url!r}: {why}", hint=_HINT)
