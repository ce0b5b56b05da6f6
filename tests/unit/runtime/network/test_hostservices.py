from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsec_layers.linux.hostloan import Host
from dsec_runtime.network import hostservices
from dsec_runtime.network.services import Service


@pytest.fixture
def host(tmp_path: Path) -> Host:
    for path, text in {
        "etc/os-release": "ID=debian\nVERSION_CODENAME=trixie\n",
        "etc/pip.conf": "[global]\nindex-url = https://index.example/simple\n"
        "extra-index-url = http://more.example:8080/simple file:///opt/more\n"
        "find-links = /opt/wheels\n",
        "etc/npmrc": "registry=https://npm.example/\n@own:registry=https://own.example/npm\n",
        "etc/apt/sources.list": "deb http://archive.example/packages trixie main\n",
        "etc/apt/sources.list.d/v.list": "deb https://vendor.example/apt trixie stable\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return Host(root=tmp_path, home=Path("/root"), environ={})


def test_services_are_what_the_programs_use(host: Host) -> None:
    assert hostservices.find(host) == {
        "pypi": Service(names=("index.example", "more.example"), ports=(443, 8080), protocol="tcp"),
        "npm": Service(names=("npm.example", "own.example"), ports=(443,), protocol="tcp"),
        "apt": Service(
            names=("archive.example", "vendor.example"), ports=(80, 443), protocol="tcp"
        ),
        "debian": Service(names=("archive.example",), ports=(80,), protocol="tcp"),
    }


def test_variables_go_before_files(host: Host) -> None:
    changed = Host(
        host.root,
        host.home,
        {
            "PIP_INDEX_URL": "https://other.example/simple",
            "npm_config_registry": "https://other.example/npm",
        },
    )

    found = hostservices.find(changed)

    assert found["pypi"].names == ("more.example", "other.example")
    assert found["npm"].names == ("other.example", "own.example")


def test_without_a_setting_the_programs_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def said(argv: list[str]) -> list[str]:
        asked.append(argv[0].rpartition("/")[2])
        return [f"https://default-{len(asked)}.example/"]

    monkeypatch.setattr(hostservices, "_said", said)

    found = hostservices.find(Host(root=tmp_path, home=Path("/root"), environ={}))

    assert found["pypi"].names == ("default-1.example",)
    assert found["npm"].names == ("default-2.example",)
    assert asked[1] == "npm"
    assert found.keys() == {"pypi", "npm"}


def test_pip_tells_its_default() -> None:
    found = hostservices._said([sys.executable, "-c", hostservices._PIP_DEFAULT])

    assert len(found) == 2
    assert all(it.startswith("https://") for it in found)


def test_addresses_become_networks_and_other_words_nothing() -> None:
    found = hostservices.service(
        ["http://192.0.2.7/simple", "cdrom:[x]/", "file:///opt", "https://", "http://a:b/", "x"]
    )

    assert found == Service(networks=("192.0.2.7/32",), ports=(80,), protocol="tcp")
