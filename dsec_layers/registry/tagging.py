"""Tags are set and removed here: when and by whom is kept with them, and what they leave lives on.

The annotations of a tag are no part of any digest:

    org.opencontainers.image.created   when it was set, RFC 3339 in UTC
    dev.dsec.tag.builder               who made what it points to: $DSEC_BUILDER, or user@host
"""

from __future__ import annotations

import contextlib
import datetime
import getpass
import os
from typing import Final

import msgspec

from dsec_layers.errors import DsecError, NotFoundError
from dsec_layers.model.blobs import Store
from dsec_layers.model.collecting import is_collectable
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference

TIME_KEY: Final = "org.opencontainers.image.created"
TIME_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"  # sorts as the times do
BUILDER_KEY: Final = "dev.dsec.tag.builder"
BUILDER_VARIABLE: Final = "DSEC_BUILDER"


def set_tag(
    store: Store,
    reference: Reference,
    target: Descriptor,
    *,
    expected: Descriptor | bool | None = False,
    builder: str = "",
) -> None:
    """Point a tag to `target`, which the caller holds a lease on; see `References.tag`.

    What it pointed to before counts as just renewed for a collector. Without `builder` it is this
    user. Raises as `References.tag`.
    """
    _renew_old(store, reference, keep=target.digest)
    now = datetime.datetime.now(datetime.UTC).strftime(TIME_FORM)
    notes = {TIME_KEY: now, BUILDER_KEY: builder or this_builder()}
    name = Reference(reference.kind, reference.name, reference.tag)
    store.tag(name, msgspec.structs.replace(target, annotations=notes), expected=expected)


def remove_tag(store: Store, reference: Reference) -> None:
    """Remove a tag; what it pointed to counts as just renewed. Raises NotFoundError, StoreError."""
    _renew_old(store, reference, keep="")
    store.untag(reference)


def this_builder() -> str:
    """Who works here."""
    if named := os.environ.get(BUILDER_VARIABLE):
        return named
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def _renew_old(store: Store, reference: Reference, *, keep: str) -> None:
    if not is_collectable(store) or not reference.tag:
        return
    with contextlib.suppress(NotFoundError):
        old = store.resolve(Reference(reference.kind, reference.name, reference.tag))
        if old.digest != keep:
            with contextlib.suppress(DsecError):  # it may go sooner then, and nothing is wrong
                store.renew(old)
