"""Packet filter rules, by libnftables in-process.

A command started as a program costs 7 ms, a call of the library well under one. A context belongs
to the network namespace of the thread that makes it, and any thread may use it afterwards. The text
of one call is one transaction of the kernel: all of it happens, or nothing (libnftables(3)).
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterable
from typing import Final, Self, cast

from dsec_runtime.errors import InfrastructureError, UnsupportedError

_LIBRARY: Final = "libnftables.so.1"
_OUTPUT_JSON: Final = 1 << 4  # NFT_CTX_OUTPUT_JSON
_OUTPUT_NUMERIC: Final = 0x380  # NFT_CTX_OUTPUT_NUMERIC_ALL: protocols, symbols and priorities


class NftError(InfrastructureError):
    """The kernel or the library refused a transaction; nothing of it happened."""


class Nftables:
    """A connection to the packet filter of one network namespace; thread-safe."""

    def __init__(self) -> None:
        """Of the calling thread's namespace. Raises UnsupportedError without the library."""
        self._library = _load()
        self._lock = threading.Lock()
        self._context = self._library.nft_ctx_new(0)
        if not self._context:
            raise UnsupportedError(
                "the packet filter of the kernel cannot be reached (no nf_tables)",
                hint="this needs root and a kernel with CONFIG_NF_TABLES",
            )
        self._library.nft_ctx_buffer_output(self._context)
        self._library.nft_ctx_buffer_error(self._context)
        self._library.nft_ctx_output_set_flags(self._context, _OUTPUT_JSON | _OUTPUT_NUMERIC)

    def run(self, lines: str | Iterable[str]) -> None:
        """Make all of `lines` true in one transaction. Raises NftError."""
        self._call(lines if isinstance(lines, str) else "\n".join(lines))

    def query(self, command: str) -> list[dict[str, object]]:
        """The objects that a `list` command names, as libnftables-json(5) has them.

        Raises NftError, also where there is no such object.
        """
        output = self._call(command)
        found = cast("dict[str, list[dict[str, object]]]", json.loads(output or b"{}"))
        return [entry for entry in found.get("nftables", []) if "metainfo" not in entry]

    def close(self) -> None:
        """Give up the connection; the rules stay."""
        with self._lock:
            if self._context:
                self._library.nft_ctx_free(self._context)
                self._context = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, text: str) -> bytes:
        with self._lock:
            if not self._context:
                raise NftError("the connection to the packet filter is closed")
            status = self._library.nft_run_cmd_from_buffer(self._context, text.encode())
            output = cast("bytes", self._library.nft_ctx_get_output_buffer(self._context) or b"")
            error = cast("bytes", self._library.nft_ctx_get_error_buffer(self._context) or b"")
        if status:
            raise NftError(f"packet filter: {_first_line(error)}")
        return output


def _first_line(error: bytes) -> str:
    lines = error.decode(errors="replace").strip().splitlines()
    return " | ".join(line.strip() for line in lines[:2]) or "refused without a reason"


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise UnsupportedError(
            f"{_LIBRARY} is not installed", hint="apt-get install libnftables1"
        ) from error
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    for name in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
        getattr(library, name).restype = ctypes.c_char_p
    for name in ("nft_ctx_buffer_output", "nft_ctx_buffer_error", "nft_ctx_free"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    return library
