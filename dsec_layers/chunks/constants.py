"""Every number that decides where chunks begin and end, or how they are stored.

Changing one changes the digests of all layers built afterwards, and new layers stop sharing chunks
with old ones. How they were chosen is told in `docs/decisions/0001-chunk-size.md`. Sizes are bytes
of plain (uncompressed) data unless their name says otherwise.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20

# The format's own limit: readers refuse longer chunks.
MAX_CHUNK_BYTES: Final = 4 * MIB

# Groups of small files: no end before the minimum, then an end every TARGET - MIN bytes on average.
GROUP_MIN_BYTES: Final = 64 * KIB
GROUP_TARGET_BYTES: Final = 256 * KIB

# A file that stores at least this much is cut on its own. FastCDC's mean is its minimum plus its
# "average".
LARGE_FILE_BYTES: Final = 256 * KIB
CDC_MIN_BYTES: Final = 64 * KIB
CDC_AVERAGE_BYTES: Final = 256 * KIB
CDC_MAX_BYTES: Final = MIB
CDC_NORMALISATION: Final = 2

ZSTD_LEVEL: Final = 2

# Stored bytes of a pack: no end before the minimum, then one every TARGET - MIN bytes on average,
# and one at the maximum at the latest.
PACK_MIN_BYTES: Final = 16 * MIB
PACK_TARGET_BYTES: Final = 32 * MIB
PACK_MAX_BYTES: Final = 64 * MIB

# A pack of another layer is referred to when this share of its bytes, or more, is used: 1 / 64.
PACK_WORTH_DIVISOR: Final = 64
