from dsec_layers.model.content import LocalFile, Source
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.times import clamp_times


def test_only_later_times_are_clamped() -> None:
    times = {b"old": -5, b"new": 10**9 + 1, b"same": 10**9}
    entries = [Entry(path=path, kind=EntryKind.FILE, mtime_ns=time) for path, time in times.items()]
    whiteout = Entry(path=b"w", kind=EntryKind.WHITEOUT)
    source = Source(Tree.of([*entries, whiteout]), {b"old": LocalFile(b"/x")})
    clamped = clamp_times(source, 1)
    assert {entry.path: entry.mtime_ns for entry in clamped.tree if entry.path in times} == {
        b"old": -5,
        b"new": 10**9,
        b"same": 10**9,
    }
    assert whiteout in clamped.tree.entries
    assert clamped.contents == source.contents
