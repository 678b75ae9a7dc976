"""The page: one file of HTML without scripts, with its style inside.

All that came from elsewhere goes through one door: Jinja escapes it, after `texts.shown` made
visible what escaping leaves alone. The style is let in by its hash, so that no other can come in.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jobs.report.data import Report
from jobs.report.methods import methods
from jobs.report.numbers import decimal, probability
from jobs.report.plots import bar, trend
from jobs.report.rows import Example
from jobs.report.texts import compared, cut, shown
from jobs.report.views import (
    FEW_ROWS,
    banner,
    direction,
    facts,
    finding_word,
    interval_name,
    legend,
    method_name,
    points,
    run_word,
    scale,
    sections,
)

MAX_BYTES = 1_900_000
_MOST_SLICES = 60  # shown of a column; where there are many columns, fewer
_SLICES_AT_ALL = 600
_MOST_SETTINGS = 100
_OPENED = 3  # examples that need not be opened, of those that got worse


def render(report: Report) -> str:
    """The page. Examples are left out where it would become too large."""
    bare = _page(report, ())
    room = MAX_BYTES - len(bare.encode())
    return _page(report, _examples(report, room))


def _page(report: Report, examples: Sequence[tuple[str, int, list[Markup]]]) -> str:
    style, style_hash = _style()
    results = report.results
    return _environment().get_template("page.html.j2").render(
        report=report,
        results=results,
        banner=banner(report),
        sections=sections(report),
        style=style,
        style_hash=style_hash,
        bar=bar,
        scale=scale,
        plot=functools.partial(_plot, report),
        legend=legend(),
        direction=functools.partial(direction, report),
        facts=() if results is None else facts(results),
        methods=() if results is None else methods(results),
        examples=examples,
        few_rows=FEW_ROWS,
        most_slices=_most_slices(report),
        most_settings=_MOST_SETTINGS,
        interval_name=interval_name,
        method_name=method_name,
        run_word=run_word,
        finding_word=finding_word,
    )  # fmt: skip


def _most_slices(report: Report) -> int:
    columns = 1 if report.results is None else max(1, len(report.results.slices))
    return min(_MOST_SLICES, max(5, _SLICES_AT_ALL // columns))


def _plot(report: Report, scorer: str, number: int) -> Markup:
    series = points(report.runs, scorer)
    title = f"{scorer} over {len(series)} runs" if len(series) != 1 else f"{scorer} of one run"
    return trend(series, title, f"plot-{number}")


def _examples(report: Report, room: int) -> list[tuple[str, int, list[Markup]]]:
    """Titles, how many there are, and those that there is room for; the worse ones come first."""
    rows = None if report.results is None or report.results.other is None else (
        report.results.other.rows
    )  # fmt: skip
    if rows is None:
        return []
    shown_rows = []
    for title, total, found, way, opened in (
        ("Newly wrong, or worse", rows.worse, rows.worse_rows, "worse", _OPENED),
        ("Newly right, or better", rows.better, rows.better_rows, "better", 0),
    ):
        made: list[Markup] = []
        for number, example in enumerate(found):
            one = _example(example, way, number < opened)
            room -= len(one.encode())
            if room < 0:
                break
            made.append(one)
        shown_rows.append((title, total, made))
    return shown_rows


def _example(example: Example, way: str, opened: bool) -> Markup:
    words = compared(example.before.answer or "", example.now.answer or "")
    template = _environment().get_template("example.html.j2")
    return Markup(template.render(e=example, c=words, direction=way, opened=opened))


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("jobs.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
    )
    made.globals |= {
        "decimal": decimal,
        "probability": probability,
        "compared": compared,
        "cut": cut,
        "brief": _brief,
    }
    return made


def _visible(value: Any) -> Any:
    """What an expression of a template becomes, before it is escaped."""
    return value if isinstance(value, Markup) else shown(str(value))


def _brief(text: str, longest: int = 300) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


@functools.cache
def _style() -> tuple[Markup, str]:
    """The style, and the source that the page's policy lets in."""
    text = files("jobs.report").joinpath("style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(text), f"sha256-{digest}"
