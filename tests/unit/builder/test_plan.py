from __future__ import annotations

from collections.abc import Mapping

import pytest

from dsec_layers.builder.layerfile import parse
from dsec_layers.builder.layers import ParentLayer
from dsec_layers.builder.plan import MAX_STEPS, Plan, StagePlan, make_plan
from dsec_layers.builder.stepmaking import Options
from dsec_layers.builder.steps import CopyStep, RunStep, WorkdirStep
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.linux.ocispec import DEFAULT_PATH
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import Healthcheck, RunConfig

RUNS = {
    "base/b": RunConfig(env={"FROM_BASE": "1", "LANG": "C"}, workdir="/srv", cmd=("low",)),
    "base/plain": RunConfig(),
    "workspace/w": RunConfig(env={"W": "1"}),
    "toolkit/t": RunConfig(),
}


def resolve(reference: Reference) -> ParentLayer:
    run = RUNS.get(reference.repository)
    if run is None:
        raise NotFoundError(f"no layer {reference}", hint="import it")
    digest = Digest.sha256(str(reference).encode())
    base = "" if reference.kind is Kind.BASE else str(Digest.sha256(b"base"))
    return ParentLayer(reference, digest, reference.kind, run, run, base)


HEAD = "LAYER base x\n"


def plan_of(text: str, head: str = HEAD, **options: object) -> Plan:
    chosen = Options(**options)  # type: ignore[arg-type]
    return make_plan(parse((head + text).encode(), name="L"), chosen, resolve)


def stage(text: str, **options: object) -> StagePlan:
    return plan_of(text, HEAD, **options).target


def runs(text: str, args: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """What each RUN of the last stage sees, without the default path."""
    steps = stage(text, args=args or {}).steps
    return [
        {k: v for k, v in step.env.items() if (k, v) != ("PATH", DEFAULT_PATH)}
        for step in steps
        if isinstance(step, RunStep)
    ]


def run_step(text: str, **options: object) -> RunStep:
    step = stage(text, **options).steps[-1]
    assert isinstance(step, RunStep)
    return step


def copy_step(text: str, **options: object) -> CopyStep:
    step = stage(text, **options).steps[-1]
    assert isinstance(step, CopyStep)
    return step


# --- variables


def test_arg_before_from_is_seen_by_from_lines_only() -> None:
    text = "ARG NAME=plain\nFROM base/${NAME:-b}\nRUN a\nARG NAME\nRUN b\n"
    plan = stage(text)
    assert isinstance(plan.parent, ParentLayer)
    assert plan.parent.reference.name == "plain"
    assert runs(text) == [{}, {"NAME": "plain"}]


def test_given_arguments_win_over_defaults_everywhere() -> None:
    text = "ARG A=1\nARG B=$A-x\nFROM base/plain\nARG A=2\nARG B\nARG C=3\nRUN a\n"
    assert runs(text) == [{"A": "2", "B": "1-x", "C": "3"}]
    assert runs(text, {"A": "9"}) == [{"A": "9", "B": "9-x", "C": "3"}]
    assert runs(text, {"C": ""}) == [{"A": "2", "B": "1-x", "C": ""}]


def test_arg_without_any_value_is_unset() -> None:
    text = 'FROM base/plain\nARG A\nENV B="${A-unset}"\nRUN a\n'
    assert runs(text) == [{"B": "unset"}]
    assert runs(text, {"A": ""}) == [{"A": "", "B": ""}]


def test_env_wins_over_arg_whatever_the_order() -> None:
    assert runs("FROM base/plain\nARG A=1\nENV A=2\nRUN a\n", {"A": "3"}) == [{"A": "2"}]
    assert runs("FROM base/plain\nENV A=2\nARG A=1\nRUN a\n", {"A": "3"}) == [{"A": "2"}]
    assert runs("FROM base/plain\nARG V\nENV V=${V:-v1}\nRUN a\n") == [{"V": "v1"}]
    assert runs("FROM base/plain\nARG V\nENV V=${V:-v1}\nRUN a\n", {"V": "v2"}) == [{"V": "v2"}]


def test_arguments_reach_stages_built_on_a_stage_and_no_others() -> None:
    text = "FROM base/plain AS a\nARG A=1\nFROM a\nRUN a\n"
    assert runs(text) == [{"A": "1"}]
    text = "FROM base/plain AS a\nARG A=1\nFROM base/plain\nCOPY --from=a /x /x\nRUN a\n"
    assert runs(text) == [{}]


def test_variables_have_the_values_from_before_the_instruction() -> None:
    text = "FROM base/plain\nENV abc=hello\nENV abc=bye def=$abc\nENV ghi=$abc\nRUN a\n"
    assert runs(text) == [{"abc": "bye", "def": "hello", "ghi": "bye"}]


def test_expansion_in_each_instruction() -> None:
    text = r"""
FROM base/plain
ENV dir=/d name=n empty=
WORKDIR $dir/${name:+sub}
USER ${empty:-user}
LABEL $name="${dir} \$dir" two='$dir'
COPY --chown=$name:$name --chmod=${empty:-0600} $name ${dir}/${name}\$x
RUN echo $name
CMD echo $name
ENTRYPOINT ["$name"]
"""
    plan = stage(text)
    workdir, copy, run = plan.steps
    assert isinstance(workdir, WorkdirStep)
    assert workdir.path == "/d/sub"
    assert isinstance(copy, CopyStep)
    assert copy.sources == ("n",)
    assert (copy.destination, copy.chown, copy.chmod) == ("/d/n$x", "n:n", 0o600)
    assert isinstance(run, RunStep)
    assert run.argv == ("/bin/sh", "-c", "echo $name")
    assert (run.cwd, run.user) == ("/d/sub", "user")
    assert plan.run == RunConfig(
        env={"dir": "/d", "name": "n", "empty": ""},
        workdir="/d/sub",
        user="user",
        labels={"n": "/d $dir", "two": "$dir"},
        cmd=("/bin/sh", "-c", "echo $name"),
        entrypoint=("$name",),
    )


def test_unknown_arguments_are_refused_and_proxies_are_not_inputs() -> None:
    with pytest.raises(InvalidInputError, match="NOPE"):
        stage("FROM base/plain\nARG A\n", args={"NOPE": "1"})
    step = run_step("FROM base/plain\nRUN a\n", args={"http_proxy": "p"})
    assert "http_proxy" not in step.env
    assert step.ambient == {"http_proxy": "p"}
    declared = run_step("FROM base/plain\nARG http_proxy\nRUN a\n", args={"http_proxy": "p"})
    assert declared.env["http_proxy"] == "p"
    assert declared.ambient == {}


def test_platform_arguments_are_there_when_declared() -> None:
    (env,) = runs("FROM base/plain\nARG TARGETOS\nARG TARGETARCH\nRUN a\n")
    assert env["TARGETOS"] == "linux"
    assert env["TARGETARCH"]


def test_the_path_has_a_default_that_can_be_prepended_to() -> None:
    plan = stage("FROM base/plain\nENV PATH=/opt/bin:$PATH\nRUN a\n")
    assert plan.run.env == {"PATH": f"/opt/bin:{DEFAULT_PATH}"}
    assert stage("FROM base/plain\nRUN a\n").run.env == {}


def test_the_epoch_is_exported() -> None:
    assert run_step("FROM base/plain\nRUN a\n", epoch=7).env["SOURCE_DATE_EPOCH"] == "7"
    assert "SOURCE_DATE_EPOCH" not in run_step("FROM base/plain\nRUN a\n").env


# --- run configuration


def test_what_the_parent_sets_is_seen_and_not_repeated() -> None:
    plan = stage("FROM base/b\nENV LANG=D\nRUN a\nWORKDIR sub\n")
    run, workdir = plan.steps
    assert isinstance(run, RunStep)
    assert (run.env["FROM_BASE"], run.env["LANG"], run.cwd) == ("1", "D", "/srv")
    assert isinstance(workdir, WorkdirStep)
    assert workdir.path == "/srv/sub"
    assert plan.run == RunConfig(env={"LANG": "D"}, workdir="/srv/sub")


def test_an_entrypoint_resets_a_command_from_below_only() -> None:
    below = 'FROM base/plain AS a\nCMD ["c"]\nFROM a\nENTRYPOINT ["e"]\n'
    assert stage(below).run == RunConfig(entrypoint=("e",))
    same = 'FROM base/plain\nCMD ["c"]\nENTRYPOINT ["e"]\n'
    assert stage(same).run == RunConfig(entrypoint=("e",), cmd=("c",))


def test_what_engines_are_told() -> None:
    plan = stage(
        "FROM base/plain AS a\nARG P='8 7/udp'\nEXPOSE $P 80-81/TCP\nEXPOSE 8\nVOLUME /v /$P\n"
        "STOPSIGNAL ${S:-SIGRTMIN+3}\nMAINTAINER A $B\nFROM a\nVOLUME /w\nHEALTHCHECK NONE\n"
    )
    assert plan.run == RunConfig(
        ports=("7/udp", "8/tcp", "80/tcp", "81/tcp"),
        volumes=("/8 7/udp", "/v", "/w"),
        stop_signal="SIGRTMIN+3",
        labels={"org.opencontainers.image.authors": "A $B"},
        healthcheck=Healthcheck(test=("NONE",)),
    )
    assert plan.steps == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((f"EXPOSE {port}", "is no port") for port in ("0", "65536", "9-8", "80:80", "1/icmp")),
        ("VOLUME $NONE", "a path is empty"),
        ("STOPSIGNAL 0", "is no signal"),
        ("STOPSIGNAL -9", "is no signal"),
    ],
)
def test_what_no_engine_understands(line: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"L:3: [A-Z]*: .*{message}"):
        stage(f"FROM base/plain\n{line}\n")


@pytest.mark.parametrize(
    "platform", ["$BUILDPLATFORM", "${TARGETPLATFORM}", "linux/$TARGETARCH", "$BUILDARCH"]
)
def test_the_platform_of_this_machine(platform: str) -> None:
    assert stage(f"FROM --platform={platform} base/plain\n").steps == ()


@pytest.mark.parametrize(
    "platform", ["linux/riscv64", "windows/amd64", "linux", "$NONE", "a/b/c/d"]
)
def test_other_platforms_are_refused_where_they_are_needed(platform: str) -> None:
    text = f"FROM --platform={platform} base/plain AS other\nFROM base/plain\n"
    assert stage(text).steps == ()
    with pytest.raises(InvalidInputError, match=r"L:2: FROM: --platform=.* is not this machine's"):
        stage(text, target="other")


def test_shell_holds_for_what_follows() -> None:
    text = 'FROM base/plain\nSHELL ["/bin/bash", "-ec"]\nRUN a\nCMD b\nRUN ["c"]\n'
    plan = stage(text)
    assert [s.argv for s in plan.steps if isinstance(s, RunStep)] == [
        ("/bin/bash", "-ec", "a"),
        ("c",),
    ]
    assert plan.run.cmd == ("/bin/bash", "-ec", "b")
    assert plan.run.shell == ("/bin/bash", "-ec")


def test_relative_workdirs_build_on_each_other() -> None:
    steps = stage("FROM base/plain\nWORKDIR /a\nWORKDIR b\nWORKDIR ../c/\nRUN x\n").steps
    assert [s.path for s in steps if isinstance(s, WorkdirStep)] == ["/a", "/a/b", "/a/c"]


# --- RUN with here-documents


def test_a_heredoc_alone_is_the_script_of_the_shell() -> None:
    step = run_step("FROM base/plain\nRUN <<EOF\na $x\nb\nEOF\n")
    assert step.argv == ("/bin/sh", "-c", "a $x\nb\n")
    assert run_step("FROM base/plain\nRUN <<-'EOF'\n\ta\n\tEOF\n").argv[2] == "a\n"


def test_a_heredoc_with_a_program_of_its_own() -> None:
    step = run_step("FROM base/plain\nRUN <<EOF\n#!/usr/bin/python3\nprint()\nEOF\n")
    assert step.argv == ("/dev/pipes/EOF",)
    assert step.script is not None
    assert step.script.content == "#!/usr/bin/python3\nprint()\n"


def test_other_heredocs_are_left_to_the_shell() -> None:
    step = run_step("FROM base/plain\nRUN cat <<A - <<-'B' > /o\n$x\nA\n\ty\nB\n")
    assert step.argv[2] == "cat <<A - <<-'B' > /o\n$x\nA\n\ty\nB"
    piped = run_step("FROM base/plain\nRUN <<'EOF' | python3\nprint()\nEOF\n")
    assert piped.argv[2] == "<<'EOF' | python3\nprint()\nEOF"


def test_copied_heredocs_expand_unless_quoted() -> None:
    text = "FROM base/plain\nENV x=1\nCOPY <<A <<'B' /d/\n$x \\$x \"$x\"\nA\n$x\nB\n"
    assert [(f.name, f.content) for f in copy_step(text).inline] == [
        ("A", b'1 $x "1"\n'),
        ("B", b"$x\n"),
    ]


# --- COPY


@pytest.mark.parametrize(
    ("written", "destination"),
    [
        ("/a", "/a"),
        ("/a/", "/a/"),
        ("a", "/w/a"),
        (".", "/w/"),
        ("./", "/w/"),
        ("..", "/"),
        ("../../x", "/x"),
        ("/", "/"),
        ("/a/../b/.", "/b/"),
    ],
)
def test_destinations(written: str, destination: str) -> None:
    step = copy_step(f"FROM base/plain\nWORKDIR /w\nCOPY a {written}\n")
    assert step.destination == destination


def test_copy_from_stages_and_layers() -> None:
    text = """
FROM base/plain AS one
FROM base/plain AS Two
FROM base/plain
COPY --from={} /a /b
"""
    assert copy_step(text.format("one")).origin == 0
    assert copy_step(text.format("TWO")).origin == 1
    assert copy_step(text.format("0")).origin == 0
    origin = copy_step(text.format("base/b")).origin
    assert isinstance(origin, ParentLayer)
    with pytest.raises(InvalidInputError, match=r"^L:6: 'docker.io/library/three:latest' is"):
        copy_step(text.format("three"))
    with pytest.raises(InvalidInputError, match="'2' is neither"):  # itself
        copy_step(text.format("2"))


def test_a_mode_that_is_no_mode() -> None:
    with pytest.raises(InvalidInputError, match="L:3: COPY: invalid mode 'u=y'"):
        copy_step("FROM base/plain\nCOPY --chmod=u=y a b\n")


# --- stages


def test_only_what_the_target_needs_is_planned() -> None:
    text = """
FROM base/plain AS a
RUN a
FROM base/nowhere AS unused
FROM a AS b
FROM base/plain AS c
COPY --from=b / /
FROM base/nowhere
"""
    plan = plan_of(text, target="c")
    assert [stage.index for stage in plan.stages] == [0, 2, 3]
    assert [stage.parent for stage in plan.stages][1] == 0
    assert [stage.index for stage in plan_of(text, target="2").stages] == [0, 2]
    with pytest.raises(InvalidInputError, match="no stage 'x'"):
        plan_of(text, target="x")


def test_a_missing_layer_is_reported_with_its_line() -> None:
    with pytest.raises(NotFoundError, match=r"^L:2: no layer base/nowhere:latest") as caught:
        plan_of("FROM base/nowhere\n")
    assert caught.value.hint == "import it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no FROM"),
        ("RUN a\nFROM scratch\n", "L:1: RUN stands before the first FROM"),
        ("FROM scratch\nLAYER base a\n", "L:2: LAYER is out of place"),
        ("LAYER base a\nLAYER base a\nFROM scratch\n", "L:2: LAYER is out of place"),
        ("FROM scratch\n", "does not say what it makes"),
        ("LAYER env a\nFROM scratch\n", "L:1: 'env' is not a kind"),
        ("LAYER base A\nFROM scratch\n", "L:1: not a reference"),
        ("LAYER base a:1\nFROM scratch\n", "L:1: 'a:1' is not a name"),
        ("LAYER base a\nFROM $x\n", "L:2: FROM: '.x' is empty"),
        ("LAYER base a\nFROM debian:12\n", "L:2: .*library/debian:12' is neither a stage"),
        ("LAYER base a\nFROM Debian:12\n", "L:2: 'Debian:12' is neither a stage .* nor an image"),
        ('LAYER base a\nFROM scratch\nENV a="${b:?no b}"\n', "L:3: ENV: b: no b"),
        ("LAYER base a\nFROM workspace/w\n", "L:2: a base cannot be built on workspace layer"),
        ("LAYER workspace a\nFROM scratch\n", "L:2: a workspace cannot be built on scratch"),
        ("LAYER toolkit a\nFROM workspace/w\n", "L:2: a toolkit cannot be built on workspace"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        plan_of(text, head="")


def test_the_name_of_the_result() -> None:
    text = "ARG V=x\nLAYER workspace a/$V\nFROM base/plain\n"
    assert str(plan_of(text, head="").reference) == "workspace/a/x:latest"
    overridden = plan_of(text, head="", kind="toolkit", name="other")
    assert overridden.reference.repository == "toolkit/other"


def test_layers_of_the_own_kind_may_stand_below() -> None:
    for kind, parent in (("base", "scratch"), ("workspace", "workspace/w"), ("toolkit", "base/b")):
        plan = plan_of(f"LAYER {kind} a\nFROM {parent}\n", head="")
        assert plan.reference.kind == kind


def test_titles_are_one_short_line() -> None:
    step = run_step(f"FROM base/plain\nRUN a \\\n   b {'c' * 300}\n")
    assert step.title.startswith("RUN a b ccc")
    assert len(step.title) == 120
    scripted = run_step("FROM base/plain\nRUN <<EOF\nset -e\n  make\nEOF\n")
    assert scripted.title == "RUN <<EOF (set -e; make)"


def test_an_empty_user_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="L:3: USER: '\\$NOBODY' is empty here"):
        stage("FROM base/plain\nUSER $NOBODY\n")


def test_no_more_steps_than_the_kernel_stacks() -> None:
    some = "FROM base/plain AS a\n" + "RUN a\n" * (MAX_STEPS - 1)
    assert len(stage(some + "FROM a\nRUN b\n").steps) == 1
    with pytest.raises(InvalidInputError, match=f"^L:{MAX_STEPS + 4}: RUN: more than") as caught:
        stage(some + "FROM a\nRUN b\nRUN c\n")
    assert caught.value.hint is not None


@pytest.mark.parametrize("line", ["ENV a=$a$a", "ARG a=$a$a", "LABEL a=$a$a", "ENV a=${a//x/$a}"])
def test_variables_that_double_are_refused(line: str) -> None:
    with pytest.raises(InvalidInputError, match=r"too long|longer than 1048576"):
        plan_of("FROM scratch\nENV a=xxxxxxxx\n" + f"{line}\nENV a=$a$a\n" * 30)


def test_a_layerfile_has_bounds() -> None:
    with pytest.raises(InvalidInputError, match=":4001: more than 4000 instructions"):
        plan_of("FROM scratch\n" + "USER a\n" * 4001)
    with pytest.raises(InvalidInputError, match="larger than 4 MiB"):
        plan_of("FROM scratch\n" + "#" * (4 << 20))
