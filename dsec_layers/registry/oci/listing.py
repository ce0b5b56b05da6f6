"""What a registry holds: its repositories and their tags, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urljoin

import msgspec

from dsec_layers.errors import NotFoundError, StoreError
from dsec_layers.registry.oci.client import CATALOG_SCOPE, Client, pull_scope

_PAGE: Final = 1000
_MAX_PAGE_BYTES: Final = 16 << 20


class _Page(msgspec.Struct, frozen=True):
    repositories: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None


def repositories(client: Client) -> Iterator[str]:
    """All repositories. Raises StoreError when the registry does not tell."""
    path = f"/v2/_catalog?n={_PAGE}"
    try:
        for page in _pages(client, path, CATALOG_SCOPE, "cannot list repositories"):
            yield from page.repositories or ()
    except (NotFoundError, StoreError) as error:
        raise StoreError(
            error.message,
            hint="many registries list no repositories (/v2/_catalog); name a layer in full",
        ) from error


def tags(client: Client, repository: str) -> Iterator[str]:
    """All tags of a repository, none when it does not exist. Raises StoreError."""
    path = f"/v2/{repository}/tags/list?n={_PAGE}"
    try:
        for page in _pages(client, path, pull_scope(repository), f"cannot list {repository}"):
            yield from page.tags or ()
    except NotFoundError:
        return


def _pages(client: Client, path: str, scope: str, doing: str) -> Iterator[_Page]:
    seen = set()
    following: str | None = path
    while following and following not in seen:
        seen.add(following)
        response, data = client.whole(
            following, scope=scope, doing=doing, most_bytes=_MAX_PAGE_BYTES
        )
        link = response.links.get("next", {}).get("url")
        following = urljoin(response.url, link) if link else None
        try:
            yield msgspec.json.decode(data, type=_Page)
        except msgspec.DecodeError as error:
            raise StoreError(f"{doing}: the registry gave something else: {error}") from error
