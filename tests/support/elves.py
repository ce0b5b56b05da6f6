"""ELF files that say what they need, and hold nothing else."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_ADDRESS = 0x400000  # where the file is loaded, so that addresses are not offsets


def make_elf(
    interpreter: bytes,
    needed: Sequence[bytes],
    *,
    wide: bool = True,
    order: str = "<",
    wants: Mapping[bytes, Sequence[bytes]] | None = None,
    has: Sequence[bytes] = (),
) -> bytes:
    """A file with these names; of 32 bits unless `wide`, in the byte order of `struct`.

    `wants` are versions of symbols by library (a `?` before one makes it weak), `has` are its own.
    """
    wants = wants or {}
    head_bytes, row_bytes = (64, 56) if wide else (52, 32)
    count = 3 if interpreter else 2
    at = head_bytes + count * row_bytes
    texts = [*needed, *wants, *(each.lstrip(b"?") for some in wants.values() for each in some)]
    names = b"\0" + b"".join(name + b"\0" for name in [*texts, *has])

    def name(text: bytes) -> int:
        return names.index(b"\0" + text + b"\0") + 1

    strings, interp = at, at + len(names)
    needs = b"".join(
        _needed(
            order,
            name(lib),
            [(each, name(each.lstrip(b"?"))) for each in some],
            last=lib == [*wants][-1],
        )
        for lib, some in wants.items()
    )
    offers = b"".join(_offered(order, name(each), last=each == has[-1]) for each in has)
    verneed = interp + len(interpreter) + 1
    verdef = verneed + len(needs)
    dynamic = verdef + len(offers)
    pairs = [(1, name(each)) for each in needed]
    pairs += [(5, _ADDRESS + strings)]
    if wants:
        pairs += [(0x6FFFFFFE, _ADDRESS + verneed), (0x6FFFFFFF, len(wants))]
    if has:
        pairs += [(0x6FFFFFFC, _ADDRESS + verdef), (0x6FFFFFFD, len(has))]
    pairs += [(0, 0), (1, 1)]
    body = names + interpreter + b"\0" + needs + offers
    body += b"".join(struct.pack(order + ("QQ" if wide else "II"), *pair) for pair in pairs)
    rows = [(1, 0, at + len(body)), (2, dynamic, at + len(body) - dynamic)]
    if interpreter:
        rows.append((3, interp, len(interpreter) + 1))
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    layout = order + ("16sHHIQQQIHHHHHH" if wide else "16sHHIIIIIHHHHHH")
    header = struct.pack(
        layout, ident, 3, 62, 1, 0, head_bytes, 0, 0, head_bytes, row_bytes, count, 0, 0, 0
    )
    return header + b"".join(_row(*row, wide=wide, order=order) for row in rows) + body


def _needed(order: str, library: int, versions: Sequence[tuple[bytes, int]], last: bool) -> bytes:
    rows = [
        struct.pack(
            order + "IHHII",
            0,
            2 if text.startswith(b"?") else 0,
            2 + number,
            name,
            16 if number + 1 < len(versions) else 0,
        )
        for number, (text, name) in enumerate(versions)
    ]
    following = 0 if last else 16 + 16 * len(rows)
    return struct.pack(order + "HHIII", 1, len(rows), library, 16, following) + b"".join(rows)


def _offered(order: str, name: int, last: bool) -> bytes:
    head = struct.pack(order + "HHHHIII", 1, 0, 2, 1, 0, 20, 0 if last else 28)
    return head + struct.pack(order + "II", name, 0)


def _row(kind: int, offset: int, size: int, *, wide: bool, order: str) -> bytes:
    address = _ADDRESS + offset
    if wide:
        return struct.pack(order + "IIQQQQQQ", kind, 4, offset, address, address, size, size, 1)
    return struct.pack(order + "8I", kind, offset, address, address, size, size, 4, 1)
