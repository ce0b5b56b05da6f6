from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.errors import InvalidInputError
from dsec_runtime.network import services
from dsec_runtime.network.services import NodePolicy, Service, Table
from tests.support.profiles import fewer

TEXT = """
# of the operator
[services.pypi]
names = ["index.example", "*.files.example"]
networks = ["198.51.100.0/24"]
ports = [443]
protocol = "tcp"

[hosts]
"mirror.example" = ["198.51.100.7"]

[policy]
never = ["192.0.2.0/24"]
private_answers = true
"""


def test_a_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "services.toml"
    path.write_text(TEXT)

    assert services.read(path) == Table(
        services={
            "pypi": Service(
                names=("index.example", "*.files.example"),
                networks=("198.51.100.0/24",),
                ports=(443,),
                protocol="tcp",
            )
        },
        hosts={"mirror.example": ("198.51.100.7",)},
        policy=NodePolicy(never=("192.0.2.0/24",), private_answers=True),
    )


def test_without_a_file_the_table_is_empty(tmp_path: Path) -> None:
    assert services.read(tmp_path / "services.toml") == Table()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[services", "services"),
        ("[services.a]\nnmaes = []", "nmaes"),
        ("[services.a]\nports = [0]", "ports"),
        ("[services.a]\nnetworks = ['10.0.0.0/40']", "10.0.0.0/40"),
        ("[services.' ']\nports = [1]", "no name of a service"),
        ("[services.a]\nnames = ['a..b']", "a..b"),
        ("[hosts]\na = ['b']", "'b'"),
        ("[hosts]\nA = ['10.0.0.1']", "must be a"),
        ("[policy]\nnever = ['x']", "'x'"),
    ],
)
def test_a_broken_table_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "services.toml"
    path.write_text(text)

    with pytest.raises(InvalidInputError, match=r"services\.toml") as caught:
        services.read(path)

    assert words in str(caught.value)


def test_what_the_operator_wrote_stays(tmp_path: Path) -> None:
    path = tmp_path / "services.toml"
    path.write_text(TEXT)
    found = {"pypi": Service(names=("other.example",)), "npm": Service(names=("n.example",))}

    assert services.fill(path, found) == ["npm"]
    assert services.fill(path, found) == []

    assert path.read_text().startswith(TEXT.strip())
    table = services.read(path)
    assert table.services["pypi"].names == ("index.example", "*.files.example")
    assert table.services["npm"] == found["npm"]
    assert [it.name for it in tmp_path.iterdir()] == ["services.toml"]


service_names = st.from_regex(services._SERVICE, fullmatch=True)
found_services = st.builds(
    Service,
    names=st.lists(st.sampled_from(["a.example", "*.b.example"]), max_size=2).map(tuple),
    networks=st.lists(st.sampled_from(["10.0.0.0/8"]), max_size=1).map(tuple),
    ports=st.lists(st.integers(1, 65535), max_size=3).map(tuple),
    protocol=st.sampled_from(["tcp", "udp", "any"]),
)


@fewer
@given(st.dictionaries(service_names, found_services, max_size=4))
def test_what_is_filled_in_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, Service]
) -> None:
    path = tmp_path_factory.mktemp("edge") / "services.toml"

    services.fill(path, found)

    assert services.read(path).services == found
