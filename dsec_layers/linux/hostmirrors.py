"""Lending a container what this machine knows about package mirrors, certificates and proxies.

Sites with mirrors have configured their machines: apt sources, pip and npm settings, certificate
bundles, proxies, folders of packages. A build step borrows them while it runs and none of it gets
into the layer: everything is found through variables that point to one mounted place.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from dsec_layers.linux import hostapt, hostnpm, hostpip
from dsec_layers.linux.hostloan import Host, Loan

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
# Each names a file of trusted certificates; who reads it stands in front of the name.
_BUNDLES = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"),
    *("NODE_EXTRA_CA_CERTS", "DENO_CERT", "CARGO_HTTP_CAINFO", "BUNDLE_SSL_CA_CERT"),
    *("AWS_CA_BUNDLE", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
    *("HTTPLIB2_CA_CERTS", "NIX_SSL_CERT_FILE", "PERL_LWP_SSL_CA_FILE", "HEX_CACERTS_PATH"),
)


def lend(rootfs: Path, folder: Path, host: Host | None = None) -> Loan:
    """What this machine lends to commands on the mounted `rootfs`.

    `folder` must not exist; it is filled with what the loan's binds show and must stay until the
    command has ended. The loan's `env` gives way to variables that the layer sets. The apt sources
    are lent only to a root file system of this machine's own distribution and release.
    """
    host = host or Host()
    loan = Loan(folder)
    bundle = _lend_certificates(loan, host)
    for name in _PROXIES:
        for spelling in (name, name.upper()):
            if value := host.environ.get(spelling):
                loan.env[spelling] = value
    hostapt.lend(loan, host, rootfs, hostapt.settings(), bundle)
    hostpip.lend(loan, host)
    hostnpm.lend(loan, host)
    return loan


def _lend_certificates(loan: Loan, host: Host) -> str | None:
    """Lend the bundles that variables name, and the system's own where none does.

    Not over the file in /etc/ssl: installing certificates replaces that, and a mount would refuse.
    Returns the path of the main bundle in the container.
    """
    for name in _BUNDLES:
        value = Path(host.environ.get(name, ""))
        if value.is_absolute() and value.is_file():
            loan.env[name] = loan.path(value)
    system = ssl.get_default_verify_paths().cafile
    if "SSL_CERT_FILE" not in loan.env and system and Path(system).is_file():
        loan.env["SSL_CERT_FILE"] = loan.path(Path(system))
    return loan.env.get("SSL_CERT_FILE")
