"""RUN --mount: what a command sees, what stays, and what counts as an input."""

from __future__ import annotations

import pytest

from dsec_layers.errors import BuildError, InvalidInputError
from dsec_layers.model.tree import EntryKind
from tests.support.builds import Workshop, names

pytestmark = [pytest.mark.root, pytest.mark.oci]

WORKSPACE = "LAYER workspace w\n"


def run(workshop: Workshop, mount: str, command: str, before: str = "", **options: object) -> str:
    """Build one RUN; nothing but what the command makes below /made may stay."""
    text = f"{before}FROM base/small\nRUN --mount={mount} {command}\n"
    built = workshop.build(text, head=WORKSPACE, **options)
    assert names(built) == [name for name in names(built) if name.startswith("made")]
    assert {path.split("/")[0] for path in built.entries} <= {"", "made"}
    return built.output


def test_a_cache_lasts_and_leaves_nothing(workshop: Workshop) -> None:
    mount = "type=cache,target=/root/.cache/x,mode=0750,uid=7,gid=8"
    seen = run(workshop, mount, "cd /root/.cache/x; echo 1 > a; stat -c %a:%u:%g .")
    assert seen == "750:7:8\n"
    assert run(workshop, mount, "cat /root/.cache/x/*") == "1\n"
    other = "type=cache,id=other,target=/root/.cache/x"
    assert run(workshop, other, "ls /root/.cache/x") == ""
    same = "type=cache,id=/root/.cache/x,target=/else,ro"
    assert run(workshop, same, "cat /else/a; touch /else/b 2> /dev/null || echo no") == "1\nno\n"
    assert (workshop.home / "caches/%2Froot%2F.cache%2Fx/data/a").read_text() == "1\n"


def test_what_a_cache_holds_is_no_input(workshop: Workshop) -> None:
    text = "FROM base/small\nRUN --mount=type=cache,id=c,target=/c ls /c\n"
    assert workshop.build(text).cached == [False]
    (workshop.home / "caches/c/data/new").touch()
    assert workshop.build(text).cached == [True]
    text = text.replace("target=/c", "target=/d").replace("ls /c", "ls /d")
    assert workshop.build(text).cached == [False]


def test_a_cache_may_start_with_what_a_stage_holds(workshop: Workshop) -> None:
    before = "FROM base/small AS seed\nRUN mkdir -p /s/d; echo 1 > /s/d/f\n"
    mount = "type=cache,target=/c,from=seed,source=/s"
    assert run(workshop, mount, "cat /c/d/f; echo 2 > /c/d/f", before) == "1\n"
    assert run(workshop, mount, "cat   /c/d/f", before) == "2\n"
    assert run(workshop, mount, "cat /c/d/f; true", before.replace("echo 1", "echo 3")) == "3\n"


def test_one_cache_twice_in_a_step(workshop: Workshop) -> None:
    text = (
        "FROM base/small\nRUN --mount=type=cache,id=c,target=/a,sharing=locked "
        "--mount=type=cache,id=c,target=/b echo 1 > /a/f; cat /b/f\n"
    )
    assert workshop.build(text).output == "1\n"


def test_a_bind_shows_the_context_and_forgets_what_is_written(workshop: Workshop) -> None:
    workshop.write("d/f", "one\n")
    workshop.write("d/left-out", "x")
    workshop.write(".dockerignore", "d/left-out\n")
    look = "cd /m; ls; stat -c %u f; cat f; echo more >> f || echo no; echo 2> /dev/null > new"
    assert "no\n" in run(workshop, "target=/m,source=d", f"{look} || true")
    assert run(workshop, "target=/m,source=d,rw", f"{look}; cat f") == "f\n0\none\none\nmore\n"
    assert (workshop.context / "d/f").read_text() == "one\n"
    assert run(workshop, "target=/m/file,source=d/f", "cat /m/file") == "one\n"


def test_what_a_bind_shows_is_an_input(workshop: Workshop) -> None:
    workshop.write("d/f", "one")
    workshop.write("e", "one")
    text = "FROM base/small\nRUN --mount=target=/m,source=d cat /m/f\n"
    assert workshop.build(text).output == "one"
    workshop.write("e", "two")
    assert workshop.build(text).cached == [True]
    workshop.write("d/f", "two")
    changed = workshop.build(text)
    assert (changed.cached, changed.output) == ([False], "two")


@pytest.mark.parametrize("origin", ["made", "base/small"])
def test_binds_of_stages_and_layers(workshop: Workshop, origin: str) -> None:
    before = "FROM base/small AS made\nRUN echo one > /etc/one\n"
    look = "cd /m; cat passwd > /made; echo x > group || echo no"
    ours = run(workshop, f"from={origin},source=/etc,target=/m", f"({look}) 2> /dev/null", before)
    assert ours == "no\n"
    writing = f"from={origin},source=/etc,target=/m,rw"
    assert run(workshop, writing, f"{look}; cat group", before) == "x\n"
    one = "one\n" if origin == "made" else ""
    assert run(workshop, f"from={origin},target=/m", "cat /m/etc/one || true", before).endswith(one)


def test_a_bind_of_a_stage_counts_by_content(workshop: Workshop) -> None:
    text = (
        "FROM base/small AS made\nRUN {} > /f\n"
        "FROM base/small\nRUN --mount=from=made,source=/f,target=/f cat /f\n"
    )
    assert workshop.build(text.format("echo 1")).output == "1\n"
    assert workshop.build(text.format("cat /dev/null; echo 1")).cached == [False, True]
    assert workshop.build(text.format("echo 2")).output == "2\n"


def test_memory(workshop: Workshop) -> None:
    mount = "type=tmpfs,target=/t/mp,size=64k"
    seen = run(workshop, mount, "grep ' /t/mp ' /proc/mounts | cut -d' ' -f3; echo > /t/mp/a")
    assert seen == "tmpfs\n"
    with pytest.raises(BuildError):
        run(workshop, mount, "cat /bin/sh /bin/sh > /t/mp/full")


def test_secrets_are_seen_and_never_kept(workshop: Workshop) -> None:
    secrets = {"key": b"hidden!"}
    mount = "type=secret,id=key,env=KEY,target=/etc/keys/k,uid=7,mode=0440,required"
    command = "stat -c %a:%u /etc/keys/k; cat /etc/keys/k; echo ' '${#KEY}"
    assert run(workshop, mount, command, secrets=secrets) == "440:7\nhidden! 7\n"
    plain = "cat /run/secrets/key"
    assert run(workshop, "type=secret,id=key", plain, secrets=secrets) == "hidden!"
    for path in workshop.home.rglob("*"):
        assert not path.is_file() or b"hidden!" not in path.read_bytes()
    text = f"FROM base/small\nRUN --mount={mount} {command}\n"
    again = workshop.build(text, secrets={"key": b"other"})
    assert again.cached == [True]
    assert "hidden" not in repr(workshop.request(text, secrets=secrets))


def test_a_secret_that_is_not_given(workshop: Workshop) -> None:
    assert run(workshop, "type=secret,id=key", "ls /run/secrets || echo none").endswith("none\n")
    with pytest.raises(InvalidInputError, match="no secret 'key' is given") as caught:
        run(workshop, "type=secret,id=key,required", "true")
    assert (caught.value.where or "").endswith("Layerfile:3")
    with pytest.raises(InvalidInputError, match="is no text"):
        run(workshop, "type=secret,id=key,env=K", "true", secrets={"key": b"\xff"})


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ("target=/m,source=none", "none is not in the context"),
        ("from=base/small,target=/m,source=/none", "/none is not in the layer base/small"),
        ("from=base/other,target=/m", "no layer"),
        ("type=cache,from=base/small,source=/etc/passwd,target=/m", "no directory"),
    ],
)
def test_mistakes_name_the_line(workshop: Workshop, mount: str, message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        run(workshop, mount, "true")
    assert "Layerfile:3" in str(caught.value)


def test_inner_mounts_come_after_outer_ones(workshop: Workshop) -> None:
    workshop.write("d/in/f", "context")
    text = (
        "FROM base/small\nRUN --mount=type=tmpfs,target=/m/in --mount=target=/m,source=d "
        "ls /m /m/in; mkdir -p /m2/x\n"
    )
    built = workshop.build(text, head=WORKSPACE)
    assert built.output.split() == ["/m:", "in", "/m/in:"]
    assert built.entries["m2/x"].kind is EntryKind.DIRECTORY
    assert "m" not in built.entries


def test_a_bind_of_a_further_context(workshop: Workshop) -> None:
    other = workshop.folder / "other"
    other.mkdir()
    (other / "f").write_text("one")
    contexts = {"more": other}
    assert run(workshop, "from=more,target=/m", "cat /m/f", contexts=contexts) == "one"
    with pytest.raises(InvalidInputError, match="of a stage or layer only"):
        run(workshop, "type=cache,from=more,target=/m", "true", contexts=contexts)
