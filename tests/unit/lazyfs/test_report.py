import pytest

from dsec_layers.errors import BusyError, CorruptError, NotFoundError, StoreError
from dsec_layers.lazyfs.report import Recorder, Report


def report(recorder: Recorder) -> Report:
    return Report("env/demo", tuple(recorder.checks))


def test_sound_parts_raise_nothing() -> None:
    recorder = Recorder()
    with recorder.prefixed("base"), recorder.check("pack") as findings:
        findings.size_bytes = 7
    assert [(check.part, check.size_bytes, check.ok) for check in recorder.checks] == [
        ("base: pack", 7, True)
    ]
    assert report(recorder).ok
    report(recorder).raise_for_problems()


@pytest.mark.parametrize(
    "error", [CorruptError("bad"), NotFoundError("bad"), StoreError("bad"), OSError(5, "bad")]
)
def test_damage_is_a_problem_and_the_next_check_goes_on(error: Exception) -> None:
    recorder = Recorder()
    with recorder.check("first"):
        raise error
    with recorder.check("second"):
        pass
    assert [check.ok for check in recorder.checks] == [False, True]
    with pytest.raises(CorruptError, match=r"env/demo is damaged: first: .*bad"):
        report(recorder).raise_for_problems()


def test_other_errors_are_not_swallowed() -> None:
    recorder = Recorder()
    with pytest.raises(BusyError), recorder.check("first"):
        raise BusyError("in use")
    assert recorder.checks == []


def test_thousands_of_problems_are_counted() -> None:
    recorder = Recorder()
    with recorder.check("tree") as findings:
        for number in range(1000):
            findings.problem(f"file {number}")
    (check,) = recorder.checks
    assert check.problems[0] == "file 0"
    assert check.problems[-1] == "and 992 more"


def test_what_was_repaired_is_said() -> None:
    recorder = Recorder()
    with recorder.check("cache") as findings:
        findings.problem("entry is damaged")
        findings.repaired = True
    with pytest.raises(CorruptError, match=r"cache: entry is damaged \(repaired\)") as caught:
        report(recorder).raise_for_problems()
    assert caught.value.hint is None
