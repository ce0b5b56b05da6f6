"""Residue taken out of a diff, and the list of what was taken.

Residue is what was written at a path; what was removed stays removed. So whiteouts are never
residue, and an opaque directory that is residue becomes a whiteout. Where a changed file is
residue, the one of the layer below is seen again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from dsec_layers.builder.residuerules import GIT_UNREACHABLE, Rule, RuleSet
from dsec_layers.model.content import Source
from dsec_layers.model.residue import DroppedBy, GitScrubbed, Residue, digest_of
from dsec_layers.model.tree import Entry, EntryKind, Tree


@dataclass(frozen=True, slots=True)
class Dropped:
    """A path that was left out, the name of the rule, and the bytes of the file."""

    path: bytes
    rule: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Swept:
    """A diff without its residue, and the residue in path order."""

    source: Source
    dropped: tuple[Dropped, ...]


def sweep(source: Source, rules: RuleSet, garbage: Collection[bytes] = ()) -> Swept:
    """Take residue out of the diff `source`. `garbage` are paths of unreachable git objects."""
    verdicts: dict[bytes, Rule] = {}
    emptied: set[bytes] = set()  # residue in which nothing of lower layers is seen
    for entry in source.tree:
        if entry.path and (rule := _rule(entry, source, rules, garbage, verdicts)) is not None:
            verdicts[entry.path] = rule
            if entry.opaque or entry.parent in emptied:
                emptied.add(entry.path)
    kept: list[Entry] = []
    dropped: list[Dropped] = []
    needed: set[bytes] = set()
    for entry in reversed(source.tree.entries):  # what lies in a directory comes before it
        if entry.kind is EntryKind.WHITEOUT and entry.parent in emptied:
            continue
        rule = verdicts.get(entry.path)
        if rule is None or entry.kind is EntryKind.WHITEOUT or entry.path in needed:
            kept.append(entry)
            needed.add(entry.parent)
            continue
        dropped.append(Dropped(entry.path, rule.name, entry.size))
        if entry.opaque and entry.parent not in emptied:
            kept.append(Entry(path=entry.path, kind=EntryKind.WHITEOUT))
            needed.add(entry.parent)
    tree = Tree.of(kept)
    contents = {
        entry.path: source.contents[entry.path] for entry in tree if entry.kind is EntryKind.FILE
    }
    return Swept(Source(tree, contents), tuple(reversed(dropped)))


def attest(
    rules: RuleSet, dropped: Iterable[Dropped], git: tuple[GitScrubbed, ...] = ()
) -> Residue:
    """What the config of a layer says of the residue."""
    found: dict[str, list[Dropped]] = {rule.name: [] for rule in rules.rules}
    versions = {rule.name: rule.version for rule in rules.rules}
    if rules.git_unreachable:
        found[GIT_UNREACHABLE.name] = []
        versions[GIT_UNREACHABLE.name] = GIT_UNREACHABLE.version
    for each in dropped:
        found[each.rule].append(each)
    return Residue(
        dropped=tuple(_counted(name, versions, found[name]) for name in sorted(found)),
        kept=rules.kept,
        digest=digest_of(each.path for group in found.values() for each in group),
        git=git,
    )


def _counted(name: str, versions: Mapping[str, int], dropped: list[Dropped]) -> DroppedBy:
    size = sum(each.size_bytes for each in dropped)
    return DroppedBy(name, versions[name], len(dropped), size)


def _rule(
    entry: Entry,
    source: Source,
    rules: RuleSet,
    garbage: Collection[bytes],
    verdicts: Mapping[bytes, Rule],
) -> Rule | None:
    """The rule that makes an entry residue, by itself or with the directory that holds it."""
    if entry.kind is EntryKind.WHITEOUT:
        return None
    above = verdicts.get(entry.parent)
    if above is not None:
        return above
    if entry.path in garbage:
        return GIT_UNREACHABLE
    content = source.contents.get(entry.path)
    return next((rule for rule in rules.rules if rule.matches(entry, content)), None)
