from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bench import __main__ as program
from bench.report import Metric, Report, interleaved, ratio


def report(value: float) -> Report:
    return Report("demo", {"speed": Metric(value, 0.7, "higher", [1.0, 2.0])})


def test_the_json_has_the_agreed_form() -> None:
    told = json.loads(report(0.5).json())
    assert set(told) == {"bench", "machine", "metrics"}
    assert told["bench"] == "demo"
    assert told["metrics"]["speed"] == {
        "value": 0.5,
        "goal": 0.7,
        "better": "higher",
        "met": False,
        "runs": [1.0, 2.0],
    }


def test_goals_have_a_direction() -> None:
    assert Metric(2, 1, "higher").met
    assert not Metric(2, 1, "lower").met
    assert Metric(1, 1, "lower").met
    assert Metric(1, None, "lower").met


@pytest.mark.parametrize(("value", "status"), [(0.9, 0), (0.5, 1)])
def test_a_missed_goal_is_the_exit_status(
    value: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = SimpleNamespace(main=lambda: report(value))
    monkeypatch.setattr("importlib.import_module", lambda _: module)
    assert program.main(["pack"]) == status
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["bench"] == "demo"


def test_runs_alternate_and_medians_are_compared() -> None:
    order: list[str] = []

    def run(name: str, value: float) -> float:
        order.append(name)
        return value

    first, second = interleaved(lambda: run("a", 6), lambda: run("b", 2), runs=2)
    assert order == ["a", "b", "a", "b"]
    assert ratio([*first, 1000], [*second, 0]) == 3
