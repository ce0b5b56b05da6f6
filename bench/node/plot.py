"""Draw what `bench node` found of the classes: `python -m bench.node.plot RESULT.json PLOT.svg`.

The result is the JSON object that the benchmark printed; the plot has the 50th and the 99th
percentile of how long a burst took, by load, with and without the classes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.node.classes import KINDS, LOADS, PERCENTILES, metric_name

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 360, 56, 48, 40, 150
_COLOURS: Final = {"classes": "#1b7f5c", "no_classes": "#b5452c"}
_DASHES: Final = {50: "none", 99: "6 4"}
_GRID: Final = 5
_Values = dict[str, float]


def draw(values: _Values) -> str:
    """The plot as SVG; `values` are milliseconds by name of metric."""
    most = max(values[metric_name(*line, load)] for line in _lines() for load in LOADS)
    most = max(_GRID, -(-most // _GRID) * _GRID)
    body = [*_axes(most), *(_line(values, number, most) for number, _ in enumerate(_lines()))]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', *body, "</svg>", ""])


def _lines() -> list[tuple[str, int]]:
    return [(kind, percent) for kind in KINDS for percent in PERCENTILES]


def _x(load: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * load / 100


def _y(milliseconds: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * milliseconds / most


def _axes(most: float) -> Iterator[str]:
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    yield _text(_LEFT, 22, "A burst of 5 ms of work in an ls sandbox: how long it takes, ms")
    for step in range(_GRID + 1):
        value = most * step / _GRID
        y = _y(value, most)
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
        yield _text(_LEFT - 6, y + 4, f"{value:g}", "end")
    for load in LOADS:
        yield _text(_x(load), _HEIGHT - _BOTTOM + 18, f"{load} %", "middle")
    yield _text(_x(50), _HEIGHT - 10, "load of the busy sandboxes beside it", "middle")


def _line(values: _Values, number: int, most: float) -> str:
    kind, percent = _lines()[number]
    points = [(_x(load), _y(values[metric_name(kind, percent, load)], most)) for load in LOADS]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    look = f'stroke="{_COLOURS[kind]}" stroke-width="2" stroke-dasharray="{_DASHES[percent]}"'
    label_y = _TOP + 18 * number
    start = _WIDTH - _RIGHT + 12
    return (
        f'<polyline points="{path}" fill="none" {look}/>'
        f'<path d="M{start} {label_y}h24" {look}/>'
        + _text(start + 30, label_y + 4, f"p{percent}, {kind.replace('_', ' ')}")
    )


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def main(result: str, plot: str) -> None:
    """Read the one, write the other."""
    metrics = json.loads(Path(result).read_text())["metrics"]
    Path(plot).write_text(draw({name: metric["value"] for name, metric in metrics.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
