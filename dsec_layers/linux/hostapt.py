"""Lending apt's settings: the distribution's own sources with their keys, proxies, credentials.

APT_CONFIG names a file that moves apt's main source list to a lent one. Files that a command adds
to /etc/apt/sources.list.d keep their meaning; those in it that name the distribution's own archive,
as container images carry, are hidden by an empty file while the command runs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsec_layers.errors import CapabilityMissingError, DsecError
from dsec_layers.linux import inroot, process
from dsec_layers.linux.aptsources import Source, parse, render
from dsec_layers.linux.hostloan import Host, Loan

Setting = tuple[str, str]

_LENT = re.compile(
    r"Acquire::(https?(::.*)?|ftp(::.*)?|Retries|ForceIPv[46]|By-Hash|PDiffs|Queue-Mode"
    r"|Check-Valid-Until|Check-Date|Max-ValidTime(::.*)?|Min-ValidTime(::.*)?)",
    re.IGNORECASE,
)
_PARTS = "etc/apt/sources.list.d"


@functools.cache
def settings() -> tuple[Setting, ...]:
    """The effective apt settings of this machine, in order; none without apt."""
    try:
        output = process.run(["apt-config", "dump"]).stdout.decode(errors="surrogateescape")
    except (CapabilityMissingError, DsecError):
        return ()
    return tuple(re.findall(r'^(\S+) "(.*)";$', output, re.MULTILINE))


def lend(
    loan: Loan, host: Host, rootfs: Path, settings: Iterable[Setting], bundle: str | None
) -> None:
    """Lend apt's settings, and its sources when `rootfs` is of this machine's release."""
    lines = [
        f'{name} "{loan.words(value)}";'
        for name, value in settings
        if value and _LENT.fullmatch(name)
    ]
    if bundle and not any(line.lower().startswith("acquire::https::cainfo ") for line in lines):
        lines.append(f'Acquire::https::CaInfo "{bundle}";')
    release = host_release(host)
    if release and release == _release(_text(rootfs, "/etc/os-release")):
        lines += _lend_sources(loan, host, rootfs, release[1])
    if credentials := _credentials(host):
        lines.append(f'Dir::Etc::netrc "{loan.write("apt-auth.conf", credentials)}";')
    if lines:
        loan.env["APT_CONFIG"] = loan.write("apt.conf", "\n".join(lines) + "\n")


def _lend_sources(loan: Loan, host: Host, rootfs: Path, codename: str) -> Iterator[str]:
    own = [source for source in host_sources(host) if source.is_of(codename)]
    if not own:
        return
    text = render(_rewrite(source, loan, host) for source in own)
    yield f'Dir::Etc::sourcelist "{loan.write("apt.sources", text)}";'
    empty = loan.folder / "empty"
    empty.touch()
    for name in sorted(_names(rootfs / _PARTS)):
        path = f"/{_PARTS}/{name}"
        sources = list(parse(_text(rootfs, path), name))
        if sources and all(source.is_of(codename) for source in sources):
            loan.hide(path, empty)


def host_sources(host: Host) -> Iterator[Source]:
    """The enabled sources of this machine, of whatever vendor."""
    yield from parse(host.text("/etc/apt/sources.list"), "sources.list")
    for name in sorted(_names(host.root / _PARTS)):
        yield from parse(host.text(f"/{_PARTS}/{name}"), name)


def _rewrite(source: Source, loan: Loan, host: Host) -> Source:
    """`source` with its keys and local archives lent.

    Without keys of its own it is checked with those that this machine trusts for everything.
    """
    keys = source.get("Signed-By")
    if not keys and not source.get("Trusted"):
        trusted = host.root / "etc/apt/trusted.gpg.d"
        keys = " ".join(str(trusted / name) for name in sorted(_names(trusted)))
    if keys.startswith("/"):
        source = source.replace("Signed-By", loan.words(keys.replace(",", " ")))
    return source.replace("URIs", loan.words(source.get("URIs")))


def _credentials(host: Host) -> str:
    parts = host.root / "etc/apt/auth.conf.d"
    texts = [host.text("/etc/apt/auth.conf")]
    texts += [host.text(f"/etc/apt/auth.conf.d/{name}") for name in sorted(_names(parts))]
    return "\n".join(text for text in texts if text.strip())


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir() if entry.is_file()]
    except OSError:
        return []


def _text(rootfs: Path, path: str) -> str:
    return (inroot.read_file(rootfs, path) or b"").decode(errors="surrogateescape")


def host_release(host: Host) -> tuple[str, str] | None:
    """The distribution of this machine and its code name, as os-release(5) has them."""
    return _release(host.text("/etc/os-release"))


def _release(os_release: str) -> tuple[str, str] | None:
    """Distribution and code name, from os-release(5)."""
    values = dict(re.findall(r"^(\w+)=[\"']?([^\"'\n]*)[\"']?$", os_release, re.MULTILINE))
    found = values.get("ID", ""), values.get("VERSION_CODENAME", "")
    return found if all(found) else None
