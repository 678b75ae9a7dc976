"""Plots as SVG, written by hand: a few shapes need no library, and a strict page takes them.

Their colours are classes of the page's style sheet, so that they follow its light and dark forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from jobs.report.numbers import decimal

WIDTH, HEIGHT = 340, 176
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 14, 18, 24

_SHAPES = {
    "circle": '<circle class="circle" cx="{0:.1f}" cy="{1:.1f}" r="3.5"/>',
    "triangle": '<path class="triangle" d="M{0:.1f} {1:.1f}m-5.5 -4.5h11l-5.5 10z"/>',
    "square": '<path class="square" d="M{0:.1f} {1:.1f}m-4 -4h8v8h-8z"/>',
    "cross": '<path class="cross" d="M{0:.1f} {1:.1f}m-4 -4l8 8m0 -8l-8 8"/>',
    "dash": '<path class="dash" d="M{0:.1f} {1:.1f}m-4 0h8"/>',
    "break": '<path class="break" d="M{0:.1f} 0v14"/>',
    "band": '<path class="band" d="M{0:.1f} {1:.1f}m-8 -5h16v10h-16z"/>',
}
_RING = '<circle class="ring" cx="{:.1f}" cy="{:.1f}" r="6"/>'


@dataclass(frozen=True, slots=True)
class Point:
    """A run in a plot.

    Attributes:
        label: what is said of it where it is pointed at.
        value: None where there is no score; `mark` then stands at the bottom.
        mark: `circle`, `triangle`, `square`, or without a value `cross` or `dash`.
        ring: whether it is a baseline.
        broken: what changed since the run before, so that the line is broken; empty if nothing.
    """

    label: str
    when: str
    value: float | None
    low: float | None
    high: float | None
    mark: str
    ring: bool = False
    broken: str = ""


def trend(points: Sequence[Point], title: str, key: str) -> Markup:
    """The values of a scorer over the runs, the oldest at the left.

    Args:
        title: what it shows, for those who cannot see it.
        key: makes ids of its own on the page.
    """
    bottom, top = _range(points)
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(points) - 1)
    xs = [_LEFT + step * i if len(points) > 1 else WIDTH / 2 for i in range(len(points))]

    def y(value: float) -> float:
        share = (value - bottom) / (top - bottom)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    drawn = [
        *(_tick(value, y(value)) for value in _ticks(bottom, top)),
        *(_break(x - step / 2, p) for x, p in zip(xs[1:], points[1:], strict=True) if p.broken),
    ]
    for run in _unbroken(points):
        lows = [f"{xs[i]:.1f},{y(_or(points[i].low, points[i].value)):.1f}" for i in run]
        highs = [f"{xs[i]:.1f},{y(_or(points[i].high, points[i].value)):.1f}" for i in run]
        line = " ".join(f"{xs[i]:.1f},{y(points[i].value or 0.0):.1f}" for i in run)
        if len(run) > 1:
            corners = " ".join((*highs, *reversed(lows)))
            drawn.append(_svg('<polygon class="band" points="{}"/>', corners))
            drawn.append(_svg('<polyline class="line" points="{}"/>', line))
    for x, point in zip(xs, points, strict=True):
        drawn.append(_mark(x, point, y))
    drawn += _dates(points)
    return _svg(
        '<svg class="plot" role="img" viewBox="0 0 {} {}" aria-labelledby="{}">'
        '<title id="{}">{}</title>{}</svg>',
        WIDTH, HEIGHT, key, key, title, Markup("").join(drawn),
    )  # fmt: skip


def bar(
    value: float | None, low: float | None, high: float | None, scale: tuple[float, float]
) -> Markup:
    """A value with its interval on a line, beside numbers that say the same."""
    if value is None:
        return Markup("")
    start, end = scale
    width, height = 120, 14

    def x(number: float) -> float:
        share = (number - start) / (end - start) if end > start else 0.5
        return 4 + min(1.0, max(0.0, share)) * (width - 8)

    zero = _svg('<path class="zero" d="M{:.1f} 1V13"/>', x(0.0)) if start < 0 < end else ""
    left, right = x(_or(low, value)), x(_or(high, value))
    return _svg(
        '<svg class="bar" aria-hidden="true" viewBox="0 0 {} {}">'
        '<path class="axis" d="M4 7H{}"/>{}<path class="span" d="M{:.1f} 7H{:.1f}"/>'
        '<circle class="dot" cx="{:.1f}" cy="7" r="3.5"/></svg>',
        width, height, width - 4, zero, left, max(right, left + 0.5), x(value),
    )  # fmt: skip


def sample(shape: str, ring: bool = False) -> Markup:
    """A mark by itself, for the legend."""
    x, y = 9.0, 7.0
    return _svg(
        '<svg class="plot" aria-hidden="true" viewBox="0 0 18 14">{}{}</svg>',
        _svg(_RING, x, y) if ring else "", _svg(_SHAPES[shape], x, y),
    )  # fmt: skip


def _svg(markup: str, *values: object) -> Markup:
    """Fill in values; texts among them are escaped."""
    return Markup(markup).format(*values)


def _or(value: float | None, other: float | None) -> float:
    return value if value is not None else (other or 0.0)


def _range(points: Sequence[Point]) -> tuple[float, float]:
    """What the plot reaches from and to: all values and intervals, and never nothing."""
    known = [p for p in points if p.value is not None]
    ends = [end for p in known for end in (p.value, p.low, p.high) if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    pad = max((high - low) * 0.1, 0.01, abs(high) * 1e-6)
    if low >= 0 and high <= 1:
        return max(0.0, low - pad), min(1.0, high + pad)
    return low - pad, high + pad


def _ticks(bottom: float, top: float) -> Iterable[float]:
    """Two to six round numbers."""
    rough = (top - bottom) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * f for f in (1, 2, 5, 10) if unit * f >= rough * 0.999)
    number = math.ceil(bottom / step - 1e-9)
    while number * step <= top + step * 1e-9:
        yield number * step
        number += 1


def _tick(value: float, y: float) -> Markup:
    return _svg(
        '<path class="grid" d="M{} {:.1f}H{}"/><text class="tick" x="{}" y="{:.1f}">{}</text>',
        _LEFT, y, WIDTH - _RIGHT, _LEFT - 5, y + 3.5, decimal(value, short=True),
    )  # fmt: skip


def _break(x: float, point: Point) -> Markup:
    return _svg(
        '<g><title>{} changed</title><path class="break" d="M{:.1f} {}V{}"/>'
        '<text class="why" x="{:.1f}" y="{}">{}</text></g>',
        point.broken, x, _TOP - 4, HEIGHT - _BOTTOM, x, _TOP - 7, point.broken,
    )  # fmt: skip


def _unbroken(points: Sequence[Point]) -> Iterable[list[int]]:
    """Runs of points that a line may join: all have values, and nothing changed between them."""
    run: list[int] = []
    for i, point in enumerate(points):
        if run and (point.value is None or point.broken):
            yield run
            run = []
        if point.value is not None:
            run.append(i)
    if run:
        yield run


def _mark(x: float, point: Point, y: Callable[[float], float]) -> Markup:
    at = HEIGHT - _BOTTOM if point.value is None else y(point.value)
    shape = _svg(_SHAPES[point.mark], x, at)
    span = ""
    if point.value is not None and point.low is not None and point.high is not None:
        span = _svg(
            '<path class="whisker" d="M{:.1f} {:.1f}V{:.1f}"/>', x, y(point.low), y(point.high)
        )
    ring = _svg(_RING, x, at)
    return _svg(
        "<g><title>{}</title>{}{}{}</g>",
        point.label, span, ring if point.ring else "", shape,
    )  # fmt: skip


def _dates(points: Sequence[Point]) -> list[Markup]:
    """Of the first and the last run; of the only one in the middle."""
    text = '<text class="date {}" x="{}" y="{}">{}</text>'
    at = HEIGHT - 7
    if len(points) == 1:
        return [_svg(text, "middle", WIDTH / 2, at, points[0].when)]
    if not points:
        return []
    return [
        _svg(text, "start", _LEFT, at, points[0].when),
        _svg(text, "end", WIDTH - _RIGHT, at, points[-1].when),
    ]
