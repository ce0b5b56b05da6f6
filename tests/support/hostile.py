"""Archives and images that nobody means well with: hostile names, lying sizes, damage."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable

import zstandard
from hypothesis import strategies as st

from tests.support import ocis
from tests.support.tars import END, archive, padded, pax_record, raw_header

NAMES = [
    *(b"a", b"a/", b"a/b", b"a/b/c", b"b", b"./a", b"a//b", b"a/./b", b"", b".", b"/", b"./"),
    *(b"..", b"../a", b"/a", b"//a/b", b"a/../b", b"a/../../b", b"a/..", b"/../../etc/passwd"),
    *(b".wh.a", b"a/.wh.b", b"a/.wh..wh..opq", b".wh..wh..opq", b".wh.", b".wh..", b".wh..."),
    *(b".wh..wh.plnk/x", b"a/.wh.a/b", b"\xff\xfe", b"a\nb", b"a" * 100, b"c/" * 49),
]
_NUMBERS = [
    *(
        b"0000644\0",
        b"0000000\0",
        b"7777777\0",
        b"       \0",
        b"\0" * 8,
        b"-000001\0",
        b"0o00017\0",
    ),
    *(b"\xff" * 8, b"\x80" + bytes(6) + b"\x07", b"\x80" + b"\xff" * 7, b"99999999"),
]
_TIMES = [b"00000000000\0", b"77777777777\0", b"\xff" * 12, b"\x80" + b"\xff" * 11, b"x" * 12]
_SIZES = [0, 0, 1, 5, 511, 512, 513, 1024, 5000, 8**11 - 1]
_KINDS = [b"0", b"\0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"S", b"D", b"V", b"L", b"K"]
_MAGICS = [b"ustar\x0000", b"ustar  \0", bytes(8), b"ustar\0\0\0"]
_KEYS = [
    *(b"path", b"linkpath", b"size", b"mtime", b"uid", b"gid", b"GNU.sparse.name", b"hdrcharset"),
    *(b"GNU.sparse.major", b"GNU.sparse.minor", b"GNU.sparse.realsize", b"GNU.sparse.map"),
    *(b"GNU.sparse.size", b"GNU.sparse.numblocks", b"GNU.sparse.offset", b"GNU.sparse.numbytes"),
    *(b"SCHILY.xattr.user.a", b"SCHILY.xattr.security.capability", b"LIBARCHIVE.xattr.user.b"),
    *(b"SCHILY.xattr.", b"SCHILY.xattr.trusted.overlay.opaque", b"", b"comment"),
]
_VALUES = [
    *(b"", b"0", b"1", b"5", b"512", b"-1", b"1.5", b"99999999999999999999", b"9" * 400, b"\0"),
    *(b"0,5", b"0,1,4,1", b"0,512,9999,1", b"4,1,0,1", b"0,5,", b"18446744073709551615,1", b"%%%"),
    *(b"a\0b", b"1e3", b"x" * 300, b"UTF-8", b"QUJD"),
]
_DATA = [b"", b"x", b"hello" * 200, b"1\n0\n512\n", b"2\n0\n1\n9\n1\n", b"99999999\n", b"\0" * 600]


def _header(
    name: bytes, kind: bytes, size: int, link: bytes, number: bytes, mtime: bytes, magic: bytes
) -> bytes:
    fields = {"mode": number, "uid": number, "gid": number, "mtime": mtime, "link": link}
    return raw_header(name, kind, size, magic=magic, **fields)


_headers = st.builds(
    _header,
    st.sampled_from(NAMES),
    st.sampled_from(_KINDS),
    st.sampled_from(_SIZES),
    st.sampled_from(NAMES),
    st.sampled_from(_NUMBERS[:2]) | st.sampled_from(_NUMBERS),
    st.sampled_from(_TIMES[:1]) | st.sampled_from(_TIMES),
    st.sampled_from(_MAGICS),
)
_good_files = st.builds(
    lambda name, data, mode: raw_header(name, b"0", len(data), mode=mode) + padded(data),
    st.sampled_from(NAMES),
    st.sampled_from(_DATA),
    st.sampled_from(_NUMBERS[:3]),
)
_good_others = st.builds(
    lambda name, kind, link: raw_header(name, kind, 0, link=link),
    st.sampled_from(NAMES),
    st.sampled_from([b"1", b"2", b"3", b"5", b"6"]),
    st.sampled_from(NAMES),
)
_records = st.lists(
    st.builds(pax_record, st.sampled_from(_KEYS), st.sampled_from(_VALUES + NAMES))
    | st.sampled_from([b"5 a=\n", b"99 a=b\n", b"0 a=b\n", b"a=b\n", b"7 a=b\nx"]),
    max_size=5,
).map(b"".join)
_extended = st.builds(
    lambda kind, data: raw_header(b"x", kind, len(data)) + padded(data),
    st.sampled_from([b"x", b"x", b"g", b"X", b"L", b"K"]),
    _records | st.sampled_from([name + b"\0" for name in NAMES]),
)
_sparse = st.builds(
    lambda name, numbers, tail: (
        raw_header(name, b"S", 512, rest=b"ustar  \0" + bytes(121) + b"".join(numbers) + tail)
        + bytes(512)
    ),
    st.sampled_from(NAMES),
    st.lists(
        st.sampled_from([b"%011o\0" % n for n in (0, 1, 512, 1024, 8**11 - 1)] + [b"\xff" * 12]),
        min_size=8,
        max_size=8,
    ),
    st.sampled_from(
        [b"\0" + b"%011o\0" % 2000, b"\1" + b"%011o\0" % 2000, b"\0" * 13, b"\xff" * 13]
    ),
)


def _damaged(data: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    """Bytes set, with the checksum of a header made right again half of the time; cut short."""
    changed = bytearray(data)
    for at, value in changes:
        if changed:
            at %= len(changed)
            changed[at] = value & 0xFF
            if value & 0x100:
                start = at // 512 * 512
                block = changed[start : start + 512]
                total = sum(block) - sum(block[148:156]) + 8 * 32
                changed[start + 148 : start + 156] = b"%06o\0 " % total
    return bytes(changed[: len(changed) - cut])


_damage = st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 511)), max_size=3)
_cuts = st.sampled_from([0, 0, 0, 0, 1, 512, 1024, 1100, 3000])

tars = st.builds(
    lambda members, end, damage, cut: _damaged(b"".join(members) + end, damage, cut),
    st.lists(st.one_of(_good_files, _good_others, _extended, _headers, _sparse), max_size=8),
    st.sampled_from([END, END, END, b"", bytes(512), END + b"garbage"]),
    st.just([]) | _damage,
    st.just(0) | _cuts,
)

_PACKERS: list[Callable[[bytes], bytes]] = [
    gzip.compress,
    bz2.compress,
    lzma.compress,
    lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
    zstandard.compress,
    lambda data: gzip.compress(data[:700]) + gzip.compress(data[700:]),
    lambda data: zstandard.compress(data[:700]) + zstandard.compress(data[700:]),
    lambda data: gzip.compress(gzip.compress(data)),
]
packed_tars = st.builds(
    lambda data, pack, damage, cut: _damaged(pack(data), damage, cut),
    tars,
    st.sampled_from(_PACKERS),
    st.just([]) | st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3),
    st.sampled_from([0, 0, 1, 4, 8, 30]),
)

_STRANGE: list[object] = [
    *(None, 0, -1, 1 << 70, 1.5, "", "x", [], {}, [[]], True, "sha256:" + "0" * 64, "sha512:0"),
    *("../../etc/passwd", "/etc/passwd", "blobs/sha256/../../index.json", "\ud800", "a\0b", "é"),
    *(ocis.INDEX, ocis.MANIFEST, ocis.LAYER + "+gzip", ocis.LAYER + "+encrypted", [{}] * 3),
]
_FIELDS = """
mediaType digest size urls platform annotations config layers manifests architecture os
rootfs diff_ids Env Cmd Labels Healthcheck Test Config Layers RepoTags ExposedPorts User
"""


def _bent(value: object, bends: dict[str, object]) -> object:
    """A document whose fields with these names have other values."""
    if isinstance(value, dict):
        return {key: bends[key] if key in bends else _bent(it, bends) for key, it in value.items()}
    return [_bent(it, bends) for it in value] if isinstance(value, list) else value


def _image(
    layers: list[bytes],
    bends: dict[str, object],
    where: str,
    nested: int,
    more: dict[str, bytes],
    pack: Callable[[bytes], bytes],
) -> dict[str, bytes]:
    image = ocis.Image()
    run = {"Env": ["A=b"], "Cmd": ["sh"], "Labels": {}, "Healthcheck": {"Test": ["CMD", "x"]}}
    run |= {"ExposedPorts": {}, "User": "0"}
    machine = bends["architecture"] if where == "config" and "architecture" in bends else None
    pointer = image.image(
        layers,
        pack=pack,
        run=_bent(run, bends) if where == "config" else run,  # type: ignore[arg-type]
        architecture=machine,  # type: ignore[arg-type]
    )
    for _ in range(nested):
        index = {"schemaVersion": 2, "manifests": [pointer] * 2}
        pointer = image.document(_bent(index, bends) if where == "index" else index, ocis.INDEX)
    image.manifests.append(pointer)
    files = image.all_files()
    if where == "top":
        files["index.json"] = json.dumps(_bent(json.loads(files["index.json"]), bends)).encode()
    return {**files, **more}


def _signed(files: dict[str, bytes], bends: dict[str, object]) -> dict[str, bytes]:
    """A layout whose manifest is bent, and named by the digest that it has then."""
    index = json.loads(files["index.json"])
    pointer = index["manifests"][0]
    name = f"blobs/sha256/{pointer['digest'].removeprefix('sha256:')}"
    image = ocis.Image(files=dict(files))
    document = _bent(json.loads(files[name]), bends)
    image.manifests.append(image.document(document, pointer["mediaType"]))
    return image.all_files()


_bends = st.dictionaries(st.sampled_from(_FIELDS.split()), st.sampled_from(_STRANGE), max_size=2)
_more = st.dictionaries(
    st.sampled_from(["index.json", "oci-layout", "manifest.json", "../outside", "blobs"]),
    st.sampled_from([b"", b"{}", b"[]", b"[" * 100_000, b"\xff", b'{"manifests":[]}', b"null"]),
    max_size=1,
)
_few_tars = st.lists(tars, max_size=3)
images = st.one_of(
    st.builds(
        _image,
        _few_tars,
        _bends,
        st.sampled_from(["top", "index", "config"]),
        st.integers(0, 6),
        st.just({}) | _more,
        st.sampled_from([bytes, bytes, *_PACKERS]),
    ),
    st.builds(
        lambda layers, bends: _signed(_image(layers, {}, "", 0, {}, bytes), bends),
        _few_tars,
        _bends,
    ),
)

_docker = st.builds(
    lambda layers, damage: _damaged(ocis.docker_archive(layers), damage, 0), _few_tars, _damage
)
image_archives = st.one_of(
    st.builds(
        lambda files, damage, cut: _damaged(ocis.files_archive(files), damage, cut),
        images,
        st.just([]) | _damage,
        st.just(0) | _cuts,
    ),
    _docker,
    st.builds(
        lambda names, kinds, links: (
            archive([])[:0]
            + b"".join(
                raw_header(name.encode(), kind, 0, link=link.encode())
                for name, kind, link in zip(names, kinds, links, strict=True)
            )
            + END
        ),
        *(
            st.lists(st.sampled_from(choices), min_size=4, max_size=4)
            for choices in (
                ["oci-layout", "index.json", "manifest.json", "blobs", "x"],
                [b"1", b"2", b"0", b"5"],
                ["oci-layout", "index.json", "../../etc/hostname", "/etc/hostname", "x", "."],
            )
        ),
    ),
)
