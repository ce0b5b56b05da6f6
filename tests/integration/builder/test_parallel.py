"""Stages side by side: the same result as one after the other, and one end for all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsec_layers.builder.caches import Caches
from dsec_layers.builder.events import BuildEvent, StepDone, StepOutput, StepStarted
from dsec_layers.errors import BuildError
from dsec_layers.linux import mount
from tests.support.builds import Built, Workshop

pytestmark = [pytest.mark.root, pytest.mark.oci]

PATIENCE_S = 60
# Each of two commands waits until the other has written to a cache that both see.
MEET = (
    "RUN --mount=type=cache,id=meet,target=/m echo > /m/{0}; "
    "i=0; until test -e /m/{1} || test $i = 9000; do i=$((i+1)); sleep 0.01; done; "
    "test -e /m/{1} && echo {0} > /{0}\n"
)
DIAMOND = (
    "FROM base/small AS top\nRUN echo top > /top\n"
    "FROM top AS left\n"
    + MEET.format("left", "right")
    + "FROM top AS right\n"
    + MEET.format("right", "left")
    + "FROM left\nRUN echo own > /own\nCOPY --from=right /right /from-right\n"
    "RUN --mount=from=right,target=/r cat /r/top /r/right /left > /all\n"
)


def events_of(built: Built, kind: type[BuildEvent]) -> list[int]:
    return [event.number for event in built.events if isinstance(event, kind)]  # type: ignore[union-attr]


def test_a_diamond_of_stages(workshop: Workshop) -> None:
    built = workshop.build(DIAMOND, jobs=2)
    assert built.files["all"] == b"top\nright\nleft\n"
    assert built.files["from-right"] == b"right\n"
    assert sorted(events_of(built, StepStarted)) == [1, 2, 3, 4, 5, 6]
    order = {number: place for place, number in enumerate(events_of(built, StepDone))}
    assert all(order[1] < order[number] for number in (2, 3, 4, 5, 6))
    assert order[5] > max(order[3], order[4])
    assert workshop.build(DIAMOND).cached == [True] * 6


def test_a_step_does_not_wait_for_what_only_later_ones_need(workshop: Workshop) -> None:
    text = (
        "FROM base/small AS slow\n"
        + MEET.format("slow", "quick")
        + "FROM base/small\n"
        + MEET.format("quick", "slow")
        + "COPY --from=slow /slow /slow\n"
    )
    assert workshop.build(text, jobs=2).files["slow"] == b"slow\n"


@pytest.mark.parametrize("epoch", [None, 1_000_000_000])
def test_any_number_of_jobs_gives_the_same(workshop: Workshop, epoch: int | None) -> None:
    stages = "".join(
        f"FROM base/small AS s{number}\nCOPY f{number} /in\n"
        f"RUN cat /in > /out{number}; ln /out{number} /link; touch -d @5 /out{number}\n"
        for number in range(5)
    )
    copies = "".join(f"COPY --from=s{number} /out{number} /o/{number}\n" for number in range(5))
    text = f"{stages}FROM base/small\n{copies}"
    for number in range(5):
        workshop.write(f"f{number}", str(number))
    results = []
    for jobs in (1, 4):
        home = workshop.folder / f"home-{jobs}"
        built = workshop.build(text, jobs=jobs, home=home, epoch=epoch)
        assert sorted(events_of(built, StepStarted)) == list(range(1, 16))
        if jobs == 1:
            assert events_of(built, StepStarted) == list(range(1, 16))
        files = {path: built.files[path] for path in built.files if path.startswith("o/")}
        entries = [entry for path, entry in built.entries.items() if path.startswith("o/")]
        results.append((files, entries, built.result.inputs, built.result.run))
    assert results[0] == results[1]


def test_the_same_step_is_done_once(workshop: Workshop) -> None:
    stage = "FROM base/small AS {}\nRUN cat /proc/sys/kernel/random/uuid > /id; sleep 0.3\n"
    text = stage.format("a") + stage.format("b") + "FROM a\nCOPY --from=b /id /b\n"
    for no_cache in (False, True):
        built = workshop.build(text, jobs=4, no_cache=no_cache)
        assert built.files["id"] == built.files["b"]
        assert sorted(built.cached) == [False, False, True]


def test_what_fails_first_is_told_and_ends_the_others(workshop: Workshop) -> None:
    mark = f"sleep {5_000_000 + os.getpid()}"
    text = (
        f"FROM base/small AS endless\n{MEET.format('endless', 'failing')}RUN {mark}\n"
        f"FROM base/small AS failing\n{MEET.format('failing', 'endless')}RUN echo oh; exit 7\n"
        "FROM endless\nCOPY --from=failing /failing /x\nRUN never\n"
    )
    with pytest.raises(BuildError, match=r"Layerfile:7: step 4/6 failed with status 7(.|\n)*oh"):
        workshop.build(text, jobs=2)
    assert processes_with(mark) == []
    assert workshop.leftovers() == []
    with pytest.raises(BuildError):
        workshop.build(text, jobs=1, target="failing")


def test_output_of_steps_at_once_is_told_by_number(workshop: Workshop) -> None:
    text = DIAMOND
    for name in ("left", "right"):
        text = text.replace(f"> /{name}\n", f"> /{name}; cat /{name}\n", 1)
    built = workshop.build(text, jobs=2)
    said = {
        number: b"".join(
            event.data
            for event in built.events
            if isinstance(event, StepOutput) and event.number == number
        )
        for number in (2, 3)
    }
    assert said == {2: b"left\n", 3: b"right\n"}


def test_a_locked_cache_is_used_by_one_step_at_a_time(workshop: Workshop) -> None:
    use = (
        "RUN --mount=type=cache,id=c,target=/k,sharing=locked "
        "mkdir /k/busy && sleep 0.2 && rm -d /k/busy && echo {0} > /{0}\n"
    )
    stages = "".join(f"FROM base/small AS s{name}\n{use.format(name)}" for name in "abc")
    built = workshop.build(stages + "FROM sa\nCOPY --from=sb /b /\nCOPY --from=sc /c /\n", jobs=3)
    assert built.files["b"] == b"b\n"
    assert built.files["c"] == b"c\n"


def test_a_private_cache_is_another_for_each_step_at_once(workshop: Workshop) -> None:
    use = (
        "RUN --mount=type=cache,id=p,target=/p,sharing=private "
        "--mount=type=cache,id=meet,target=/m test ! -e /p/x && echo > /p/x && echo > /m/{0} && "
        "i=0; until test -e /m/{1} || test $i = 9000; do i=$((i+1)); sleep 0.01; done; "
        "test -e /m/{1} && echo {0} > /{0}\n"
    )
    text = (
        f"FROM base/small AS left\n{use.format('left', 'right')}"
        f"FROM base/small\n{use.format('right', 'left')}COPY --from=left /left /\n"
    )
    assert workshop.build(text, jobs=2).files["left"] == b"left\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_steps(
    workshop: Workshop, base_folder: Path, number: signal.Signals
) -> None:
    """Two commands run, and a third step waits for a cache that another process has locked."""
    mark = f"sleep {6_000_000 + os.getpid()}"
    endless = f"RUN --mount=target=/c,type=cache,id={{0}},sharing=locked echo {{0}}; {mark}\n"
    waiting = "RUN --mount=target=/c,type=cache,id=held,sharing=locked echo never\n"
    request = workshop.request(
        f"FROM base/small AS a\n{endless.format('one')}FROM base/small AS b\n"
        f"{endless.format('two')}FROM base/small AS c\n{waiting}"
        "FROM a\nCOPY --from=b / /b\nCOPY --from=c / /c\n"
    )
    words = (request.layerfile, request.context, request.home, base_folder)
    with (
        Caches(workshop.home / "caches").use("held", "locked", lambda data: None),
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.build_process", *map(str, words), "3"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        ) as child,
    ):
        try:
            assert child.stdout is not None
            said = sorted(child.stdout.readline() for _ in range(2))
            assert said == ["one\n", "two\n"], child.stderr and child.stderr.read()
            child.send_signal(number)
            _, errors = child.communicate(timeout=PATIENCE_S)
        finally:
            child.kill()
    assert "KeyboardInterrupt" in errors
    assert processes_with(mark) == []
    assert [
        point.target for point in mount.mount_points() if str(workshop.home) in point.target
    ] == []
    assert workshop.leftovers() == []


def processes_with(words: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words.replace(" ", "\0").encode() in path.read_bytes():
                found.append(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
