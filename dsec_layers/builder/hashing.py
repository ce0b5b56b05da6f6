"""Content digests of what a build copies or shows: inputs of its steps, read before each."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Iterator
from typing import Final

from dsec_layers.chunks.constants import MIB
from dsec_layers.chunks.content import hash_content
from dsec_layers.model.content import Source
from dsec_layers.model.tree import Entry, EntryKind

_LARGE_BYTES: Final = MIB  # below that, handing a file to a thread takes longer than it helps


def file_digests(source: Source) -> dict[bytes, bytes]:
    """The content digest of every file by its path; large files are read side by side.

    Raises CorruptError when one changes meanwhile, InterruptedError and OSError.
    """
    firsts: dict[int, bytes] = {}
    own: list[Entry] = []
    same: dict[bytes, bytes] = {}
    for entry in source.tree:
        if entry.kind is EntryKind.FILE:
            first = firsts.setdefault(entry.link_group, entry.path) if entry.link_group else b""
            if first and first != entry.path:
                same[entry.path] = first
            else:
                own.append(entry)
    found = dict(_large(source, [entry for entry in own if entry.size >= _LARGE_BYTES]))
    for entry in own:
        if entry.path not in found:
            found[entry.path] = hash_content(source.contents[entry.path], entry.size)
    return found | {path: found[first] for path, first in same.items()}


def _large(source: Source, entries: list[Entry]) -> Iterator[tuple[bytes, bytes]]:
    if len(entries) < 2:
        return
    from concurrent.futures import ThreadPoolExecutor  # most builds copy small files only

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "hash") as pool:
        running = [
            # What stops this thread stops those, too.
            pool.submit(
                contextvars.copy_context().run,
                hash_content,
                source.contents[entry.path],
                entry.size,
            )
            for entry in entries
        ]
        for entry, each in zip(entries, running, strict=True):
            yield entry.path, each.result()
