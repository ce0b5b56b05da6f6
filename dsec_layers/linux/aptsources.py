"""apt's source lists, both formats (sources.list(5)): one line a source, and deb822 paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_POCKETS = ("", "-updates", "-security", "/updates", "-backports", "-proposed-updates", "-proposed")
# The components of Debian and of Ubuntu; other archives use other names beside the same suites.
_COMPONENTS = frozenset(
    (
        *("main", "contrib", "non-free", "non-free-firmware"),
        *("restricted", "universe", "multiverse"),
    )
)
_LONG_NAMES = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}


@dataclass(frozen=True, slots=True)
class Source:
    """One paragraph: its fields in order, continuation lines kept in the values."""

    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """The value of a field, empty without it. Names know no case."""
        return next((value for key, value in self.fields if key.lower() == name.lower()), "")

    def replace(self, name: str, value: str) -> Source:
        """The same source with another value."""
        others = [(key, old) for key, old in self.fields if key.lower() != name.lower()]
        return Source((*others, (name, value)))

    def is_of(self, codename: str) -> bool:
        """Whether this is the archive of that release itself, not some other vendor's for it."""
        suites = self.get("Suites").split()
        components = self.get("Components").split()
        own = {codename + pocket for pocket in _POCKETS}
        return bool(suites and components) and not (
            set(suites) - own or set(components) - _COMPONENTS
        )


def parse(text: str, name: str) -> Iterator[Source]:
    """The enabled sources of a file; a `name` that apt does not read has none."""
    if name.endswith(".sources"):
        yield from _paragraphs(text)
    elif name.endswith(".list"):
        for line in text.splitlines():
            if source := _one_line(line.partition("#")[0]):
                yield source


def render(sources: Iterable[Source]) -> str:
    """The text of a deb822 file."""
    paragraphs = ("".join(f"{key}: {value}\n" for key, value in it.fields) for it in sources)
    return "\n".join(paragraphs)


def _paragraphs(text: str) -> Iterator[Source]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for block in re.split(r"\n[ \t]*\n", "\n".join(lines)):
        found = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", block, re.MULTILINE)
        source = Source(tuple(found))
        if source.get("Types") and source.get("Enabled").strip().lower() not in ("no", "false"):
            yield source


def _one_line(line: str) -> Source | None:
    """`deb [option=value ...] uri suite component ...`."""
    matched = re.fullmatch(r"\s*(deb|deb-src)\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s*(.*?)\s*", line)
    if matched is None:
        return None
    kind, options, uri, suite, components = matched.groups()
    fields = [("Types", kind), ("URIs", uri), ("Suites", suite), ("Components", components)]
    for name, value in re.findall(r"([\w-]+)=(\S+)", options or ""):
        fields.append((_LONG_NAMES.get(name, name), value.replace(",", " ")))
    return Source(tuple(fields))
