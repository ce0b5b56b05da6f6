"""Images in FROM and in what takes files: which name is which, and what they leave to builds."""

from __future__ import annotations

import pytest

from dsec_layers.api.buildcontexts import parse_contexts
from dsec_layers.builder.layerfile import parse
from dsec_layers.builder.layers import Image, ImageFile, ImageForm, ParentLayer
from dsec_layers.builder.plan import Plan, make_plan
from dsec_layers.builder.stepmaking import Options
from dsec_layers.builder.steps import CopyStep, RunStep
from dsec_layers.errors import InvalidInputError, NotFoundError, StoreError
from dsec_layers.model.digest import Digest
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig


def layer(name: str, **more: object) -> ParentLayer:
    reference = Reference(Kind.BASE, "x")
    digest = Digest.sha256(name.encode())
    return ParentLayer(reference, digest, Kind.BASE, RunConfig(), RunConfig(), **more)  # type: ignore[arg-type]


def plan(text: str, *contexts: str, triggers: tuple[str, ...] = ()) -> tuple[Plan, list[str]]:
    asked = []

    def resolve(reference: Reference) -> ParentLayer:
        asked.append(f"layer {reference}")
        return layer(str(reference))

    def image(image: Image) -> ParentLayer:
        asked.append(f"image {image}")
        return layer(str(image), image=f"{image}@sha256:0", triggers=triggers)

    named = parse_contexts(contexts)
    names = {name.lower(): found for name, found in named.layers.items()}
    options = Options(contexts=frozenset(named.folders), layers=names)
    parsed = parse(f"LAYER base t\n{text}".encode(), name="L")
    return make_plan(parsed, options, resolve, image, name="L"), asked


def test_what_a_name_is() -> None:
    text = (
        "FROM python:3 AS stage\nFROM stage\nCOPY --from=python:3 /a /b\nCOPY --from=stage /a /c\n"
        "COPY --from=base/x /a /d\nRUN --mount=from=r.example.com/y:1,target=/m true\n"
    )
    made, asked = plan(text)
    assert asked == [
        "image docker.io/library/python:3",
        "layer base/x:latest",
        "image r.example.com/y:1",
    ]
    copies = [step.origin for step in made.target.steps if isinstance(step, CopyStep)]
    assert isinstance(copies[0], ParentLayer)
    assert copies[1] == 0


def test_build_contexts_win_over_stages_layers_and_images() -> None:
    text = "FROM python:3 AS a\nFROM a\nCOPY --from=base/x /a /b\n"
    _, asked = plan(text, "A=layer:base/mine:1", "python:3=docker-image://other:2")
    assert asked == ["layer base/mine:1", "layer base/x:latest"]
    _, asked = plan("FROM python:3\n", "python:3=docker-image://other:2")
    assert asked == ["image docker.io/library/other:2"]
    with pytest.raises(InvalidInputError, match="L:2: 'x' is a build context"):
        plan("FROM x\n", "x=/folder")


def test_what_is_nothing_at_all() -> None:
    with pytest.raises(InvalidInputError, match=r"^L:2: 'A:B:C' is neither a stage above nor"):
        plan("FROM A:B:C\n")

    def fails(_: object) -> ParentLayer:
        raise StoreError("no network", hint="mend it")

    parsed = parse(b"LAYER base t\nFROM python\n", name="L")
    with pytest.raises(StoreError, match=r"^L:2: no network") as caught:
        make_plan(parsed, Options(), fails, fails, name="L")
    assert caught.value.hint == "mend it"


def test_triggers_come_first() -> None:
    made, _ = plan("FROM python\nRUN own\n", triggers=("ENV A=1", "RUN first", "WORKDIR /w"))
    runs = [step for step in made.target.steps if isinstance(step, RunStep)]
    assert [run.argv[-1] for run in runs] == ["first", "own"]
    assert runs[1].cwd == "/w"
    assert made.target.run.env == {"A": "1"}
    for bad in ("COPY --from=x /a /b", "FROM y", "RUN --mount=from=x,target=/m true", "NONSENSE"):
        with pytest.raises(InvalidInputError, match=r"ONBUILD of docker\.io/library/python"):
            plan("FROM python\n", triggers=(bad,))


def test_build_contexts(tmp_path: object) -> None:
    found = parse_contexts(["a=.", "b=layer:base/x:1", "a=docker-image://y:1", "c=b=c"])
    assert found.layers == {
        "b": Reference.parse("base/x:1"),
        "a": ImageName.parse("y:1"),
    }
    assert {name: str(path) for name, path in found.folders.items()} == {"c": "b=c"}
    given = parse_contexts([f"l=oci-layout://{tmp_path}:v1"]).layers["l"]
    assert isinstance(given, ImageFile)
    assert (given.form, str(given.path), given.name) == (ImageForm.LAYOUT, str(tmp_path), "v1")
    for bad in ("a", "a=", "=b", "a=https://x", "a=layer:x", "a=docker-image://X"):
        with pytest.raises(InvalidInputError):
            parse_contexts([bad])
    with pytest.raises(NotFoundError):
        parse_contexts([f"a=docker-archive://{tmp_path}/none.tar"])
