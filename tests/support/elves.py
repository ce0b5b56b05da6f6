"""ELF files that say what they need, and hold nothing else."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_ADDRESS = 0x400000  # where the file is loaded, so that addresses are not offsets


def make_elf(
    interpreter: bytes, needed: Sequence[bytes], *, wide: bool = True, order: str = "<"
) -> bytes:
    """A file with these names; of 32 bits unless `wide`, in the byte order of `struct`."""
    head_bytes, row_bytes = (64, 56) if wide else (52, 32)
    count = 3 if interpreter else 2
    at = head_bytes + count * row_bytes
    names = b"\0" + b"".join(name + b"\0" for name in needed)
    strings, interp = at, at + len(names)
    dynamic = interp + len(interpreter) + 1
    pairs = [(1, names.index(b"\0" + name + b"\0") + 1) for name in needed]
    pairs += [(5, _ADDRESS + strings), (0, 0), (1, 1)]
    body = names + interpreter + b"\0"
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


def _row(kind: int, offset: int, size: int, *, wide: bool, order: str) -> bytes:
    address = _ADDRESS + offset
    if wide:
        return struct.pack(order + "IIQQQQQQ", kind, 4, offset, address, address, size, size, 1)
    return struct.pack(order + "8I", kind, offset, address, address, size, size, 4, 1)
