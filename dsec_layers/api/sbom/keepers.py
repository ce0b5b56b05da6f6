"""Where package managers keep what they know."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


class Keeper(Enum):
    """A kind of file; `whole` ones are databases of many packages, and one hides all below it."""

    DPKG = "dpkg"
    DPKG_ONE = "dpkg status.d"
    APK = "apk"
    RPM = "rpm"
    RPM_REFUSED = "rpm in another format"
    RPM_JOURNAL = "rpm journal"
    PYPI = "python"
    NPM = "npm"

    @property
    def whole(self) -> bool:
        """Whether it lists all packages of its manager."""
        return self in (Keeper.DPKG, Keeper.APK, Keeper.RPM)


_RPM: Final = r"(?:var/lib/rpm|usr/lib/sysimage/rpm)"
_PATHS: Final = tuple(
    (kind, re.compile(pattern.encode()))
    for kind, pattern in (
        (Keeper.DPKG, r"var/lib/dpkg/status"),
        (
            Keeper.DPKG_ONE,
            r"var/lib/dpkg/status\.d/[^/]+(?<!\.md5sums)(?<!\.preinst)(?<!\.postinst)",
        ),
        (Keeper.APK, r"(?:usr/)?lib/apk/db/installed"),
        (Keeper.RPM, rf"{_RPM}/rpmdb\.sqlite"),
        (Keeper.RPM_JOURNAL, rf"{_RPM}/rpmdb\.sqlite-wal"),
        (Keeper.RPM_REFUSED, rf"{_RPM}/Packages(?:\.db)?"),
        (Keeper.PYPI, r"(?:.*/)?[^/]+\.dist-info/METADATA"),
        (Keeper.PYPI, r"(?:.*/)?[^/]+\.egg-info(?:/PKG-INFO)?"),
        (Keeper.PYPI, r"(?:.*/)?EGG-INFO/PKG-INFO"),
        (Keeper.NPM, r"(?:.*/)?node_modules/(?:@[^/]+/)?[^/@.][^/]*/package\.json"),
    )
)
# Most paths end otherwise, and need not be held against the patterns.
_ENDS: Final = (b"/status", b"/installed", b"/rpmdb.sqlite", b"/rpmdb.sqlite-wal", b"/Packages")
_MORE_ENDS: Final = (b"/Packages.db", b"/METADATA", b".egg-info", b"/PKG-INFO", b"/package.json")


def keeper(path: bytes) -> Keeper | None:
    """What the file at `path` tells of."""
    if not path.endswith(_ENDS + _MORE_ENDS) and not path.startswith(b"var/lib/dpkg/status.d/"):
        return None
    return next((each for each, pattern in _PATHS if pattern.fullmatch(path)), None)
