"""A composed tree served over FUSE: requests to `TreeNodes` and `TreeFiles`, and their answers.

Everything is answered from memory by the thread that reads the request, but data that must be
fetched: a thread of the fetcher answers that. The tree never changes, so the kernel keeps names,
attributes, directories, link targets and pages for as long as it likes. There are no open files
here: the kernel learns by ENOSYS that it need not tell of them, nor ask whether it may.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence

from dsec_layers.lazyfs.treefiles import TreeFiles
from dsec_layers.lazyfs.treenodes import TreeNodes
from dsec_layers.linux import fuse, fusenodes
from dsec_layers.linux.fuse import Buffer, Opcode, Request
from dsec_layers.linux.fuseserver import FuseServer, Handler

_log = logging.getLogger(__name__)


class TreeFs:
    """Serves a tree on the FUSE descriptor `fd` by `threads` threads until it is unmounted."""

    def __init__(self, fd: int, nodes: TreeNodes, files: TreeFiles, *, threads: int = 6) -> None:
        self._fd = fd
        self._nodes = nodes
        self._files = files
        handlers: dict[int, Handler] = {
            Opcode.READ: self._read,
            Opcode.INIT: self._init,
            Opcode.FORGET: self._ignore,
            Opcode.BATCH_FORGET: self._ignore,
            Opcode.DESTROY: self._answering(lambda _: b""),
            Opcode.LOOKUP: self._answering(self._lookup),
            Opcode.GETATTR: self._answering(self._getattr),
            Opcode.READLINK: self._answering(lambda request: nodes.target(request.node)),
            Opcode.READDIR: self._answering(self._readdir),
            Opcode.READDIRPLUS: self._answering(self._readdirplus),
            Opcode.STATFS: self._answering(self._statfs),
        }
        if nodes.has_xattrs:  # else the kernel is told once, where `ls -l` would ask for each file
            handlers[Opcode.GETXATTR] = self._answering(self._getxattr)
            handlers[Opcode.LISTXATTR] = self._answering(self._listxattr)
        self._server = FuseServer(fd, handlers, threads=threads)

    def start(self) -> None:
        """Begin to serve."""
        self._server.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the file system is unmounted, or for `timeout_s`."""
        self._server.join(timeout_s)

    def _answering(self, answer: Callable[[Request], bytes]) -> Handler:
        def handle(request: Request) -> None:
            try:
                data = answer(request)
            except OSError as error:  # what the tree refuses
                fuse.reply_error(self._fd, request.unique, error.errno or errno.EIO)
            else:
                fuse.reply(self._fd, request.unique, (data,), len(data))

        return handle

    def _read(self, request: Request) -> None:
        node = self._nodes.file(request.node)
        offset, size = fuse.decode_read(request.body)
        length = max(0, min(size, node.entry.size - offset))
        unique = request.unique

        def finished(parts: Sequence[Buffer], error: BaseException | None) -> None:
            if error is None:
                try:
                    fuse.reply(self._fd, unique, parts, length)
                    return
                except Exception:  # whatever it is, the reader waits
                    _log.exception("an answer failed")
            else:
                _log.error("a read of %r fails: %s", node.entry.path, error)
            fuse.reply_error(self._fd, unique, errno.EIO)

        self._files.start_read(node, offset, length, finished)

    def _lookup(self, request: Request) -> bytes:
        node = self._nodes.child(request.node, fuse.decode_name(request.body))
        return fusenodes.encode_entry(self._nodes.attributes(node.number) if node else None)

    def _getattr(self, request: Request) -> bytes:
        return fusenodes.encode_attributes(self._nodes.attributes(request.node))

    def _readdir(self, request: Request) -> bytes:
        listing = self._nodes.listing(request.node)
        return fusenodes.encode_directory(listing, *fuse.decode_read(request.body))

    def _readdirplus(self, request: Request) -> bytes:
        listing = self._nodes.listing(request.node)
        offset, size = fuse.decode_read(request.body)
        return fusenodes.encode_directory(listing, offset, size, self._nodes.attributes)

    def _getxattr(self, request: Request) -> bytes:
        value = self._nodes.xattr(request.node, fusenodes.decode_xattr_name(request.body))
        return fusenodes.encode_xattr(value, fusenodes.decode_xattr_size(request.body))

    def _listxattr(self, request: Request) -> bytes:
        names = b"".join(name + b"\0" for name in self._nodes.xattr_names(request.node))
        return fusenodes.encode_xattr(names, fusenodes.decode_xattr_size(request.body))

    def _statfs(self, _request: Request) -> bytes:
        return fuse.encode_statfs(self._nodes.file_bytes, len(self._nodes))

    def _init(self, request: Request) -> None:
        answer = fuse.negotiate(request.body, fuse.TREE_WISHES)
        if answer is None:
            fuse.reply_error(self._fd, request.unique, errno.EPROTO)
        else:
            fuse.reply(self._fd, request.unique, (answer,), len(answer))

    def _ignore(self, request: Request) -> None:
        """Requests without an answer: nodes live as long as the mount, not by reference."""
