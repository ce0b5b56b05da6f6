from __future__ import annotations

import pytest

from dsec_layers.builder.layerfile import parse
from dsec_layers.builder.layers import ParentLayer
from dsec_layers.builder.lint import RULES, Advice, lint
from dsec_layers.builder.patterns import IgnoreRules
from dsec_layers.builder.plan import make_plan
from dsec_layers.builder.stepmaking import Options
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux.machine import oci_architecture
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig

HEAD = "LAYER base x\n"


def resolve(reference: Reference) -> ParentLayer:
    run = RunConfig(env={"GIVEN": "1"}, workdir="/srv")
    return ParentLayer(reference, Digest.sha256(b"x"), reference.kind, run, run, "")


def advice(text: str, ignored: str = "", head: str = HEAD, **args: str) -> Advice:
    layerfile = parse((head + text).encode(), name="L")
    plan = make_plan(layerfile, Options(args), resolve)
    return lint(layerfile, plan, IgnoreRules.parse(ignored.encode()))


def found(text: str, ignored: str = "", head: str = HEAD, **args: str) -> list[tuple[str, str]]:
    """Each finding as the line and the rule."""
    findings = advice(text, ignored, head, **args).findings
    return [(it.where.removeprefix("L:"), it.rule) for it in findings]


CLEAN = """ARG TAG=1
FROM base/b:$TAG AS build
ARG name=$GIVEN
ENV PATH=/opt:$PATH other=${none:-x} public_key=1
RUN echo $anything \\
    # why
    && true
WORKDIR /a
WORKDIR b
FROM build
COPY --from=build /a$name $other/b ./
EXPOSE 80/tcp
HEALTHCHECK CMD true
CMD ["a"]
"""


def test_a_layerfile_without_findings() -> None:
    assert found(CLEAN) == []


@pytest.mark.parametrize(
    ("rule", "line", "text"),
    [
        ("StageNameCasing", 2, "FROM base/b AS Build\nFROM build\n"),
        ("FromAsCasing", 2, "FROM base/b as build\n"),
        ("NoEmptyContinuation", 3, "FROM base/b\nRUN a \\\n\n  && b\n"),
        ("ConsistentInstructionCasing", 3, "FROM base/b\nrun a\nRUN b\n"),
        ("ConsistentInstructionCasing", 3, "FROM base/b\nRun a\n"),
        ("DuplicateStageName", 3, "FROM base/b AS a\nFROM base/b AS a\n"),
        ("ReservedStageName", 2, "FROM base/b AS context\n"),
        ("JSONArgsRecommended", 3, "FROM base/b\nCMD a b\n"),
        ("JSONArgsRecommended", 3, "FROM base/b\nENTRYPOINT a b\n"),
        ("MaintainerDeprecated", 3, "FROM base/b\nMAINTAINER me\n"),
        ("UndefinedArgInFrom", 2, "FROM base/b$VARIANT\n"),
        ("UndefinedArgInFrom", 2, "FROM --platform=$BUILDPLATFROM$BUILDPLATFORM base/b\n"),
        ("WorkdirRelativePath", 3, "FROM base/b\nWORKDIR a\n"),
        ("UndefinedVar", 3, "FROM base/b\nCOPY $foo .\n"),
        ("UndefinedVar", 3, "FROM base/b\nENV PATH=$PAHT:/x\n"),
        ("UndefinedVar", 3, "FROM base/b\nLABEL a=${foo%x}\n"),
        ("MultipleInstructionsDisallowed", 3, 'FROM base/b\nCMD ["a"]\nCMD ["b"]\n'),
        ("MultipleInstructionsDisallowed", 3, "FROM base/b\nHEALTHCHECK NONE\nHEALTHCHECK NONE\n"),
        ("LegacyKeyValueFormat", 3, "FROM base/b\nENV a b c\n"),
        ("LegacyKeyValueFormat", 3, "FROM base/b\nLABEL a b=c\n"),
        ("RedundantTargetPlatform", 2, "FROM --platform=$TARGETPLATFORM base/b\n"),
        ("SecretsUsedInArgOrEnv", 3, "FROM base/b\nARG AWS_SECRET_ACCESS_KEY\n"),
        ("SecretsUsedInArgOrEnv", 3, "FROM base/b\nENV github_token=x\n"),
        ("CopyIgnoredFile", 3, "FROM base/b\nCOPY left/a /\n"),
        ("CopyIgnoredFile", 3, "FROM base/b\nADD ./left /\n"),
        ("ExposeProtoCasing", 3, "FROM base/b\nEXPOSE 80/TCP\n"),
    ],
)
def test_each_rule(rule: str, line: int, text: str) -> None:
    assert found(text, "left\n") == [(str(line), rule)]


def test_constant_platforms() -> None:
    machine = oci_architecture()
    text = f"FROM --platform=linux/{machine} base/b AS"
    assert found(f"{text} build\n") == [("2", "FromPlatformFlagConstDisallowed")]
    assert found(f"{text} build-{machine}\n") == []


def test_defaults_that_name_no_layer() -> None:
    text = "ARG TAG\nFROM base/b:$TAG\n"
    assert found(text, TAG="1") == [("3", "InvalidDefaultArgInFrom")]
    assert found(text.replace("TAG\n", "TAG=1\n", 1), TAG="2") == []


def test_a_shell_of_ones_own_is_meant() -> None:
    assert found('FROM base/b\nSHELL ["/bin/bash", "-c"]\nCMD a\n') == []


def test_what_a_stage_above_sets_is_known() -> None:
    text = "FROM base/b AS a\nENV X=1\nARG Y=2\nWORKDIR /w\nFROM a\nWORKDIR $X$Y\nWORKDIR z\n"
    assert found(text) == []
    assert found(text.replace("FROM a\n", "FROM base/b\n")) == [("7", "UndefinedVar")] * 2


def test_the_directive() -> None:
    text = "FROM base/b AS Build\nCMD a\n"
    assert len(found(text)) == 2
    assert found(text, head="# check=skip=StageNameCasing\n" + HEAD) == [
        ("4", "JSONArgsRecommended")
    ]
    assert found(text, head="# check=skip=all;error=true\n" + HEAD) == []
    strict = advice(text, head="#check = error=true; skip=StageNameCasing\n" + HEAD)
    with pytest.raises(InvalidInputError, match=r"L:4: JSONArgsRecommended: .*JSON list"):
        strict.raise_if_error()
    advice(text).raise_if_error()
    with pytest.raises(InvalidInputError, match=r"L:1: the directive check=never"):
        advice(text, head="# check=never\n" + HEAD)


def test_findings_say_what_was_meant() -> None:
    (finding,) = advice("FROM base/b\nENV   A=1  \\\n  B=$GIVEM\n").findings
    assert finding.message == "nothing above sets $GIVEM: did you mean $GIVEN?"
    assert finding.line == "ENV A=1 B=$GIVEM"


def test_every_rule_has_a_sentence() -> None:
    assert all(rule.__doc__ for rule in RULES.values())
