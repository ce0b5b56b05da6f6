"""Loop devices: a file as a block device, gone with its last user.

Source: the kernel's include/uapi/linux/loop.h.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import Final

_CONTROL: Final = "/dev/loop-control"
_GET_FREE: Final = 0x4C82
_CONFIGURE: Final = 0x4C0A
_AUTOCLEAR: Final = 4
_DIRECT_IO: Final = 16
# fd, block size; five numbers of loop_info64, four more with the flags last, names and keys, ends.
_CONFIG: Final = struct.Struct("=II 5Q 3I I 160x 16x 64x")
_BLOCK_BYTES: Final = 4096


@contextlib.contextmanager
def attached(image: int) -> Iterator[str]:
    """The path of a device that shows the open file `image`, for whoever mounts it in the block.

    What is mounted keeps the device. The file is not cached twice where its file system can read
    and write past the cache. Raises OSError.
    """
    device, path = _configured(image)
    try:
        yield path
    finally:
        os.close(device)


def _configured(image: int) -> tuple[int, str]:
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            path = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                _configure(device, image)
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # else somebody else was faster
                    raise OSError(error.errno, f"loop device: {error.strerror}", path) from error
            else:
                return device, path
    finally:
        os.close(control)


def _configure(device: int, image: int) -> None:
    for flags in (_AUTOCLEAR | _DIRECT_IO, _AUTOCLEAR):
        config = _CONFIG.pack(image, _BLOCK_BYTES, *[0] * 5, *[0] * 3, flags)
        try:
            fcntl.ioctl(device, _CONFIGURE, config)
        except OSError as error:
            if error.errno != errno.EINVAL or not flags & _DIRECT_IO:
                raise
        else:
            return
