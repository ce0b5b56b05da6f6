"""What one layer or environment has that another has not, file by file, without mounting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from dsec_layers.api.filedata import FileData, How, Place, Verdict
from dsec_layers.api.opened import Given, composition, opened, text
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import Entry, EntryKind

Compare = Callable[[bytes], Verdict]

_ADDED, _REMOVED, _CHANGED, _RETYPED = "A", "D", "M", "T"
_DEVICES = (EntryKind.CHAR, EntryKind.BLOCK)


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that changed: a field, and how it was and is, in words.

    The field `content` has no values, but says `how` the difference was found: by the size, by
    chunks, or by reading; `unread` when only reading could tell whether there is one.
    """

    field: str
    before: str = ""
    after: str = ""
    how: How | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A path that is not the same in both.

    `status` is A (added), D (removed), M (changed) or T (of another type). The types are words such
    as `file`; that of a side without the path is empty. Sizes are bytes, of files.
    """

    status: str
    path: str
    type_before: str = ""
    type_after: str = ""
    size_before_bytes: int = 0
    size_after_bytes: int = 0
    details: tuple[Detail, ...] = ()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How many paths differ, how many were compared by reading them, and what files take."""

    added: int
    removed: int
    changed: int
    retyped: int
    read: int
    added_bytes: int
    removed_bytes: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """All changes in path order."""

    before: str
    after: str
    summary: Summary
    changes: tuple[Change, ...]


def diff(
    bench: Workbench,
    before: Reference,
    after: Reference,
    *,
    times: bool = False,
    read: bool = True,
) -> Difference:
    """What a mount of `after` shows that one of `before` does not, and the other way round.

    Files of equal size whose chunks do not tell are read; without `read` they count as changed.
    Raises NotFoundError, CorruptError or StoreError.
    """
    data, reads = FileData(), 0
    layers = [bench.stack(reference).layers for reference in (before, after)]
    with opened(bench, layers[0]) as lower, opened(bench, layers[1]) as upper:
        left = composition([layer.tree for layer in lower])
        right = composition([layer.tree for layer in upper])

        def compare(path: bytes) -> Verdict:
            nonlocal reads
            mine, other = left[path], right[path]
            one, two = lower[mine.layer], upper[other.layer]
            if one.digest == two.digest:
                return Verdict(True, How.CHUNKS)
            places = Place(one, mine.entry), Place(two, other.entry)
            verdict = data.compare(*places, read=read)
            reads += verdict.how is How.READ
            return verdict

        changes = tuple(compared(left, right, compare, times=times))
    return Difference(
        before=str(before), after=str(after), summary=_summary(changes, reads), changes=changes
    )


def compared(
    left: Mapping[bytes, Given],
    right: Mapping[bytes, Given],
    compare: Compare,
    *,
    times: bool = False,
) -> Iterator[Change]:
    """The changes from one composition to another, in path order.

    `compare` is asked for the contents of paths that are files on both sides. Names of one inode
    are compared one by one, as if they were files of their own.
    """
    for path in sorted(left.keys() | right.keys()):
        mine, other = left.get(path), right.get(path)
        if mine is None or other is None:
            yield _one_sided(mine.entry if mine else None, other.entry if other else None)
            continue
        details = list(_details(mine.entry, other.entry, compare, times=times))
        retyped = mine.entry.kind is not other.entry.kind
        if details or retyped:
            status = _RETYPED if retyped else _CHANGED
            yield _change(status, mine.entry, other.entry, tuple(details))


def _one_sided(before: Entry | None, after: Entry | None) -> Change:
    return _change(_REMOVED if before else _ADDED, before, after, ())


def _change(
    status: str, before: Entry | None, after: Entry | None, details: tuple[Detail, ...]
) -> Change:
    present = before or after
    assert present
    return Change(
        status=status,
        path="/" + text(present.path),
        type_before=before.kind.name.lower() if before else "",
        type_after=after.kind.name.lower() if after else "",
        size_before_bytes=before.size if before else 0,
        size_after_bytes=after.size if after else 0,
        details=details,
    )


def _details(before: Entry, after: Entry, compare: Compare, *, times: bool) -> Iterator[Detail]:
    words = zip(_words(before, times=times), _words(after, times=times), strict=True)
    for (field, old), (_, new) in words:
        if old != new:
            yield Detail(field=field, before=old, after=new)
    yield from _xattrs(dict(before.xattrs), dict(after.xattrs))
    if before.kind is after.kind is EntryKind.FILE:
        verdict = compare(before.path)
        if not verdict.equal:
            yield Detail(field="content", how=verdict.how)


def _words(entry: Entry, *, times: bool) -> Iterator[tuple[str, str]]:
    yield "mode", f"{entry.mode:04o}"
    yield "owner", f"{entry.uid}:{entry.gid}"
    yield "size", str(entry.size) if entry.kind is EntryKind.FILE else ""
    yield "target", text(entry.target)
    yield "device", f"{entry.major}:{entry.minor}" if entry.kind in _DEVICES else ""
    if times:
        seconds, nanoseconds = divmod(abs(entry.mtime_ns), 10**9)
        yield "mtime", f"{'-' if entry.mtime_ns < 0 else ''}{seconds}.{nanoseconds:09}"


def _xattrs(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> Iterator[Detail]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield Detail(
                field=f"xattr {text(name)}",
                before=before[name].hex() if name in before else "none",
                after=after[name].hex() if name in after else "none",
            )


def _summary(changes: tuple[Change, ...], reads: int) -> Summary:
    counts = [change.status for change in changes]
    grown = [change.size_after_bytes - change.size_before_bytes for change in changes]
    return Summary(
        added=counts.count(_ADDED),
        removed=counts.count(_REMOVED),
        changed=counts.count(_CHANGED),
        retyped=counts.count(_RETYPED),
        read=reads,
        added_bytes=sum(each for each in grown if each > 0),
        removed_bytes=-sum(each for each in grown if each < 0),
    )
