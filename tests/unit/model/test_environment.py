import pytest

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.model import canonical
from dsec_layers.model.environment import KIND_KEY, REFERENCE_KEY, Environment
from dsec_layers.model.manifest import OCI_MANIFEST, Descriptor
from dsec_layers.model.reference import Kind
from dsec_layers.model.runconfig import RunConfig

Layer = tuple[Kind, str, Descriptor]


def layer(kind: Kind, name: str) -> Layer:
    return kind, f"{kind}/{name}:latest", Descriptor.of(name.encode(), OCI_MANIFEST)


BASE, WORK = layer(Kind.BASE, "b"), layer(Kind.WORKSPACE, "w")
TOOL_1, TOOL_2 = layer(Kind.TOOLKIT, "t1"), layer(Kind.TOOLKIT, "t2")
RUN = RunConfig(env={"PATH": "/bin"}, workdir="/w")


def test_layers_are_ordered_by_kind_and_toolkits_stay_as_given() -> None:
    environment = Environment.of([TOOL_2, WORK, TOOL_1, BASE], RUN)
    names = [descriptor.annotations[REFERENCE_KEY] for descriptor in environment.layers]
    assert names == [
        "base/b:latest",
        "workspace/w:latest",
        "toolkit/t2:latest",
        "toolkit/t1:latest",
    ]
    assert environment.layers[1].annotations[KIND_KEY] == "workspace"


def test_it_comes_back() -> None:
    environment = Environment.of([BASE, WORK], RUN)
    assert Environment.decode(environment.encode()) == environment
    assert environment.descriptor().size == len(environment.encode())


@pytest.mark.parametrize(
    "layers",
    [
        [],
        [WORK],
        [BASE, layer(Kind.BASE, "c")],
        [BASE, WORK, layer(Kind.WORKSPACE, "v")],
        [BASE, TOOL_1, TOOL_1],
    ],
)
def test_impossible_compositions_are_refused(layers: list[Layer]) -> None:
    with pytest.raises(InvalidInputError):
        Environment.of(layers, RUN)


def test_another_index_is_corrupt() -> None:
    index = canonical.encode(
        {"schemaVersion": 2, "mediaType": "x", "artifactType": "y", "manifests": []}
    )
    with pytest.raises(CorruptError, match="not a DSec environment"):
        Environment.decode(index)
    with pytest.raises(CorruptError):
        Environment.decode(b"{}")
