"""blobfs: the FUSE file system with one read-only file per attached layer, its device.

Threads read requests from the FUSE descriptor. What is at hand is answered by the thread itself;
a read that must wait for a store is answered by whoever fetches its last chunk, so that slow reads
never hold up warm ones. A read is answered in full or with EIO: a short answer would be cached by
the kernel as the end of the file.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.flight import Plain
from dsec_layers.linux import fuse
from dsec_layers.linux.fuse import Attributes, Opcode, Request
from dsec_layers.linux.fuseserver import FuseServer, Handler

# Names come and go, so they are looked up again; a node's content never changes.
_NAME_VALID_S: Final = 1
_ATTRIBUTES_VALID_S: Final = 86400
_ROOT: Final = Attributes(fuse.ROOT_NODE, None)
_log = logging.getLogger(__name__)


class File(NamedTuple):
    """A layer as a file: its node number, its name, its content."""

    node: int
    name: bytes
    device: LayerDevice

    @property
    def attributes(self) -> Attributes:
        """What stat shows."""
        return Attributes(self.node, self.device.size_bytes)


class Files(Protocol):
    """The files that there are at the moment. Safe for many threads."""

    def by_node(self, node: int) -> File | None:
        """The file with this node number."""
        ...

    def by_name(self, name: bytes) -> File | None:
        """The file with this name."""
        ...

    def listed(self) -> Sequence[File]:
        """All files in order of their names."""
        ...


class BlobFs:
    """Serves `files` on the FUSE descriptor `fd` by `threads` threads until it is unmounted."""

    def __init__(self, fd: int, files: Files, *, threads: int = 6) -> None:
        self._fd = fd
        self._files = files
        handlers: dict[int, Handler] = {
            Opcode.READ: self._read,
            Opcode.LOOKUP: self._lookup,
            Opcode.GETATTR: self._getattr,
            Opcode.OPEN: self._open,
            Opcode.OPENDIR: self._open,
            Opcode.READDIR: self._readdir,
            Opcode.STATFS: self._statfs,
            Opcode.INIT: self._init,
            Opcode.FORGET: self._ignore,
            Opcode.BATCH_FORGET: self._ignore,
            **dict.fromkeys(
                (
                    Opcode.RELEASE,
                    Opcode.RELEASEDIR,
                    Opcode.ACCESS,
                    Opcode.DESTROY,
                ),
                self._agree,
            ),
        }
        self._server = FuseServer(fd, handlers, threads=threads)

    def start(self) -> None:
        """Begin to serve."""
        self._server.start()

    def join(self) -> None:
        """Wait until the file system is unmounted."""
        self._server.join()

    def _reply(self, request: Request, data: bytes) -> None:
        fuse.reply(self._fd, request.unique, (data,), len(data))

    def _read(self, request: Request) -> None:
        file = self._files.by_node(request.node)
        if file is None:
            fuse.reply_error(self._fd, request.unique, errno.EIO)
            return
        offset, size = fuse.decode_read(request.body)
        length = max(0, min(size, file.device.size_bytes - offset))
        unique, counters = request.unique, file.device.layer.counters

        def finished(parts: Sequence[Plain], error: BaseException | None) -> None:
            if error is None:
                try:
                    fuse.reply(self._fd, unique, parts, length)
                    return
                except Exception:  # whatever it is, the reader waits
                    _log.exception("an answer failed")
            counters.add(errors=1)
            fuse.reply_error(self._fd, unique, errno.EIO)

        file.device.start_read(offset, length, finished)

    def _lookup(self, request: Request) -> None:
        name = fuse.decode_name(request.body)
        file = self._files.by_name(name) if request.node == fuse.ROOT_NODE else None
        if file is None:
            fuse.reply_error(self._fd, request.unique, errno.ENOENT)
            return
        entry = fuse.encode_entry(
            file.attributes, name_valid_s=_NAME_VALID_S, attributes_valid_s=_ATTRIBUTES_VALID_S
        )
        self._reply(request, entry)

    def _getattr(self, request: Request) -> None:
        file = self._files.by_node(request.node)
        if request.node != fuse.ROOT_NODE and file is None:
            fuse.reply_error(self._fd, request.unique, errno.ESTALE)
            return
        attributes = file.attributes if file else _ROOT
        self._reply(request, fuse.encode_attributes(attributes, valid_s=_ATTRIBUTES_VALID_S))

    def _open(self, request: Request) -> None:
        self._reply(request, fuse.encode_open())

    def _readdir(self, request: Request) -> None:
        offset, size = fuse.decode_read(request.body)
        entries = [(b".", _ROOT), (b"..", _ROOT)]
        entries += [(file.name, file.attributes) for file in self._files.listed()]
        self._reply(request, fuse.encode_directory(entries, offset, size))

    def _statfs(self, request: Request) -> None:
        files = self._files.listed()
        total_bytes = sum(file.device.size_bytes for file in files)
        self._reply(request, fuse.encode_statfs(total_bytes, len(files)))

    def _init(self, request: Request) -> None:
        answer = fuse.negotiate(request.body)
        if answer is None:
            fuse.reply_error(self._fd, request.unique, errno.EPROTO)
        else:
            self._reply(request, answer)

    def _agree(self, request: Request) -> None:
        fuse.reply_error(self._fd, request.unique, 0)

    def _ignore(self, request: Request) -> None:
        """Requests without an answer: nodes live as long as their layers, not by reference."""
