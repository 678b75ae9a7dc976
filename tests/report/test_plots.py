"""Plots: what is drawn stands where its number says, and all of it in the picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.report.plots import HEIGHT, WIDTH, Point, bar, trend

pytestmark = pytest.mark.quick

VALUE = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 0.5, 1e-9])
POINTS = st.lists(
    st.builds(
        lambda value, spread, mark, broken: Point(
            "a run", "2030-01-01", value,
            None if value is None else value - spread,
            None if value is None else value + spread,
            mark, broken=broken,
        ),
        st.none() | VALUE, st.floats(0, 10), st.just("circle"), st.sampled_from(["", "data"]),
    ),
    max_size=12,
)  # fmt: skip


def point(value: float | None, mark: str = "circle", **more: object) -> Point:
    around = (None, None) if value is None else (value - 0.05, value + 0.05)
    return Point(f"run {value}", "2030-01-01", value, *around, mark, **more)  # type: ignore[arg-type]


def circles(picture: ET.Element, kind: str = "circle") -> list[tuple[float, float]]:
    return [
        (float(found.attrib["cx"]), float(found.attrib["cy"]))
        for found in picture.iter("circle")
        if found.attrib["class"] == kind
    ]


@given(POINTS)
def test_all_of_it_is_in_the_picture(points: list[Point]) -> None:
    picture = ET.fromstring(trend(points, "a plot", "key"))

    for element in picture.iter():
        numbers = [element.attrib[name] for name in ("cx", "x") if name in element.attrib]
        assert all(0 <= float(x) <= WIDTH for x in numbers)
        numbers = [element.attrib[name] for name in ("cy", "y") if name in element.attrib]
        assert all(0 <= float(y) <= HEIGHT for y in numbers)
        for x, y in re.findall(r"([-\d.]+),([-\d.]+)", element.attrib.get("points", "")):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= HEIGHT
    drawn = circles(picture)
    assert len(drawn) == len(points)
    known = [(p.value, y) for p, (_, y) in zip(points, drawn, strict=True) if p.value is not None]
    for (a, high), (b, low) in zip(sorted(known), sorted(known)[1:], strict=False):
        assert a == b or high >= low - 0.11  # a higher value is higher up
    assert [x for x, _ in drawn] == sorted(x for x, _ in drawn)


def test_values_stand_at_their_ticks() -> None:
    picture = ET.fromstring(trend([point(0.2), point(0.4), point(0.6), point(0.8)], "t", "k"))
    ticks = {
        text.text: float(text.attrib["y"]) - 3.5
        for text in picture.iter("text")
        if text.attrib["class"] == "tick"
    }

    heights = [y for _, y in circles(picture)]

    assert [ticks[tick] for tick in ("0.2", "0.4", "0.6", "0.8")] == pytest.approx(heights, abs=0.1)


def test_a_line_joins_only_what_can_be_compared() -> None:
    points = [point(0.5), point(0.6), point(None, "cross"), point(0.5), point(0.6, broken="model")]

    picture = ET.fromstring(trend(points, "t", "k"))

    assert len(list(picture.iter("polyline"))) == 1
    assert [e.text for e in picture.iter("text") if e.attrib["class"] == "why"] == ["model"]
    titles = [e.text for e in picture.iter("title")]
    assert titles[0] == "t"
    assert "model changed" in titles


def test_what_is_said_is_escaped() -> None:
    hostile = Point('<script>"&', "<b>", 0.5, None, None, "circle", broken="<i>")

    picture = trend([hostile, hostile], "<title>", "key")

    assert ET.fromstring(picture).find("title").text == "<title>"  # type: ignore[union-attr]
    assert "<script>" not in picture
    assert "<b>" not in picture
    assert "<i>" not in picture


@given(VALUE, st.floats(0, 5), st.floats(0, 5))
def test_a_bar_holds_its_value(value: float, below: float, above: float) -> None:
    picture = ET.fromstring(bar(value, value - below, value + above, (0.0, 1.0)))

    (place, _) = circles(picture, "dot")[0]
    assert 4 <= place <= 116
    if 0 <= value <= 1:
        assert place == pytest.approx(4 + 112 * value, abs=0.06)
    assert bar(None, None, None, (0.0, 1.0)) == ""
