"""The page says what SQL and the files of scores say, and nothing that answers would have it do."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.evaluations import EvaluationState, Role, Verdict
from jobs.report.data import Report, gather
from jobs.report.page import MAX_BYTES, render
from jobs.report.shapes import report_json
from jobs.report.texts import shown
from jobs.storage import Storage
from jobs.store import Store
from tests.support.made_evaluations import MadeEvaluations, a_row, a_spec
from tests.support.made_series import add_series, answered, comparison, score
from tests.support.parsed_page import Element, parsed
from tests.support.played_job import sqlite_store

HOSTILE = [
    "<script>alert(1)</script>",
    "</style></title></textarea><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&amp;amp;",
    "\0\x1b[31mred\x07",
    "\u202eevil\u2066",
    "שלום עולם",
    "\ud800 alone",
    "]]><!--",
    "javascript:alert(1)",
    "x" * 100_000,
    "'onmouseover='alert(1)",
]
TAGS = frozenset((
    "html", "head", "meta", "title", "style", "body", "a", "header", "h1", "h2", "h3", "h4", "h5",
    "p", "span", "nav", "ul", "li", "main", "section", "strong", "code", "div", "table",
    "caption", "thead", "tbody", "tr", "th", "td", "data", "br", "svg", "path", "circle", "text",
    "g", "polygon", "polyline", "figure", "figcaption", "details", "summary", "bdi", "ins", "del",
    "dl", "dt", "dd", "footer", "time",
))  # fmt: skip
SAFE_ATTRIBUTES = frozenset((
    "class", "id", "href", "lang", "charset", "http-equiv", "content", "name", "aria-labelledby",
    "aria-label", "aria-hidden", "role", "tabindex", "data-label", "scope", "value", "datetime",
    "dir", "open", "viewbox", "d", "cx", "cy", "r", "x", "y", "points",
))  # fmt: skip


def report_of(
    store: Store, storage: Storage, asked: str | None = None, **options: object
) -> Report:
    given = {"against": None, "runs": 30, "examples": 50, **options}
    return gather(store, storage, asked, **given)  # type: ignore[arg-type]


def harmless(page: str) -> Element:
    """See that a page can do nothing, and is whole."""
    root = parsed(page)
    for element in root.all():
        assert element.tag in TAGS, element.tag
        assert element.attributes.keys() <= SAFE_ATTRIBUTES, element.attributes
        href = element.attributes.get("href")
        assert href is None or re.fullmatch("#[a-z]+", href)
    ids = [e.attributes["id"] for e in root.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    policy = next(root.all("meta", **{"http-equiv": "Content-Security-Policy"}))
    style = root.one("style").text
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.attributes["content"] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "url(" not in style
    assert "@import" not in style
    return root


@pytest.mark.slow
def test_all_parts_of_a_series_are_there(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    ids = add_series(made)
    root = harmless(render(report_of(store, storage)))
    text = " ".join(root.text.split())

    assert root.one("head").one("title").text == "nightly: regressed \u2013 pagemill"
    assert ids["newest"] in root.one("header").text
    verdict = root.one("section", class_="verdict").text
    assert "broken: exact fell" in verdict
    assert "held: exact is at least 0.5" in verdict
    assert f"The baseline is {ids['baseline']}. The run before is {ids['previous']}." in text
    assert [
        figure.one("figcaption").one("data").attributes["value"] for figure in root.all("figure")
    ]
    plot = next(root.all("figure"))
    assert len(list(plot.all("circle", class_="circle"))) == 7
    assert len(list(plot.all("path", class_="triangle"))) == 1
    assert len(list(plot.all("path", class_="whisker"))) == 8
    assert len(list(plot.all("polygon", class_="band"))) == 3  # a failed run, a model, and data
    assert len(list(plot.all("path", class_="cross"))) == 1
    assert len(list(plot.all("path", class_="dash"))) == 1
    assert len(list(plot.all("circle", class_="ring"))) == 1
    assert [e.text for e in plot.all("text", class_="why")] == ["model", "data"]
    assert "Answer in one short word." not in root.one("header").text
    settings = next(s for s in root.all("table") if "Settings" in s.one("caption").text)
    names = [row.one("th").text for row in settings.one("tbody").all("tr")]
    assert names == ["model", "submit.system", "submit.temperature", "data set"]
    assert [e.text for e in settings.all("ins")][1] == "short "
    missing = next(s for s in root.all("table") if "no score" in s.one("caption").text)
    assert [[c.text for c in row.all("td")] for row in missing.one("tbody").all("tr")] == [
        ["row_timeout", "4"], ["row_timeout", "4"],
    ]  # fmt: skip
    assert "secret-token" not in text
    assert "McNemar: the exact" in text


@pytest.mark.quick
def test_numbers_on_the_page_are_those_of_sql(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    ids = add_series(made)
    root = harmless(render(report_of(store, storage)))
    scores = {(s.scorer, s.slice_value): s for s in store.evaluation_scores(ids["newest"])}

    def numbers(element: Element) -> list[str]:
        return [str(data.attributes["value"]) for data in element.all("data")]

    table, *_ = root.all("table")
    for row in table.one("tbody").all("tr"):
        name = row.one("th").text
        s = scores[name, ""]
        found = [s.value, s.low, s.high, s.rows, s.missing]
        for c in store.evaluation_comparisons(ids["newest"]):
            if c.scorer == name:
                found += [c.difference, c.low, c.high, c.p_value, c.better, c.worse, c.pairs]
                found.append(c.unpaired)
        assert numbers(row) == [str(number) for number in found]
    slices = next(t for t in root.all("table") if "slices" in t.one("caption").text)
    before = {s.slice_value: s.value for s in store.evaluation_scores(ids["baseline"])}
    moved = []
    for row in slices.one("tbody").all("tr"):
        s = scores["exact", row.one("th").text]
        then = before[s.slice_value]
        assert s.value is not None
        assert then is not None
        moved.append(abs(s.value - then))
        found = [s.value, s.low, s.high, s.rows, s.missing, then, s.value - then]
        assert numbers(row) == [str(number) for number in found]
        assert (" few" in row.text) == (s.rows < 30)
    assert moved == sorted(moved, reverse=True)
    assert len(moved) == 3


@pytest.mark.quick
def test_rows_that_changed_are_side_by_side(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    before = [a_row(0, "It is 41.", exact=1.0), a_row(1, "b", exact=0.0), a_row(2, "c", exact=1.0)]
    now = [
        a_row(0, "It is 42.", target="41", custom_id="q-0", exact=0.0, notes={"exact": "42"}),
        a_row(1, "good", exact=1.0),
        a_row(2, None, error="row_timeout", exact=0.0),
    ]
    made.add(rows=before, scores=[score("exact", 0.6)])
    made.add(rows=now, scores=[score("exact", 0.3)])

    root = harmless(render(report_of(store, storage, "nightly")))

    assert [h.text for h in root.all("h3")][:2] == [
        "Newly wrong, or worse", "Newly right, or better",
    ]  # fmt: skip
    first, second, third = root.all("details", class_="example")
    assert first.one("summary").text == "Row 0, q-0: exact worse"
    assert [e.text for e in first.all("del")] == ["41"]
    assert [e.text for e in first.all("ins")] == ["42"]
    assert "exact: 0 (42)" in first.text
    assert "question 0" in first.text
    assert "no answer: row_timeout" in second.text
    assert third.one("summary").text == "Row 1: exact better"
    assert "open" in first.attributes
    assert "open" not in third.attributes


@pytest.mark.quick
def test_what_texts_hold_does_nothing(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    def rows(score: float) -> list[dict[str, object]]:
        found = []
        for i, text in enumerate(HOSTILE):
            plain = text.encode("utf-8", "replace").decode()  # as Parquet holds no surrogate
            found.append(
                a_row(i, f"{plain} {score}", prompt=plain, target=plain, custom_id=plain,
                      notes={"exact": plain[:200]}, exact=score)
            )  # fmt: skip
        missing = [
            a_row(
                100 + i, None, error=f"{text[:20]}".encode("utf-8", "replace").decode(), exact=None
            )
            for i, text in enumerate(HOSTILE)
        ]
        return found + missing

    nasty = "<script>alert(1)</script>\u202e{{ 7 }}"
    spec = a_spec(model=nasty, inputs=[nasty], submit={"system": f"{nasty} 1"}, slices=[nasty])
    other = a_spec(model=nasty, inputs=[nasty], submit={"system": f"{nasty} 2"}, slices=[nasty])
    slices = [score("exact", 0.5, slice_column=nasty, slice_value=t[:200]) for t in HOSTILE[:8]]
    made.add(rows=rows(1.0), scores=[score("exact", 1.0), *slices], spec=spec, dataset_hash=nasty)
    made.add(
        rows=rows(0.0), scores=[score("exact", 0.0), *slices], spec=other,
        findings=[{"rule": nasty, "passed": False, "sentence": nasty}],
    )  # fmt: skip

    root = harmless(render(report_of(store, storage)))

    assert len(list(root.all("details", class_="example"))) == len(HOSTILE)
    assert "<script>alert(1)</script>" in root.text  # as letters
    assert "{{ 7 * 7 }}" in root.text
    assert not re.search("[\0\x1b\u202e\u2066]", root.text)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.text(st.characters(codec="utf-8"), max_size=60),
    st.text(st.characters(codec="utf-8"), max_size=60),
)
def test_any_texts_come_out_as_they_went_in(scene: Scene, answer: str, note: str) -> None:
    scene.write(answer, note)

    root = harmless(render(report_of(scene.store, scene.storage)))

    example = root.one("details", class_="example")
    texts = [e.text for e in example.all("div", class_="text")]
    assert texts[0] == shown(answer)  # the prompt
    assert texts[3] == (shown(answer) or "(empty)")
    if note:
        assert f"({shown(note)})" in example.text


class Scene:
    """Two runs with one row whose texts are changed."""

    def __init__(self, store: Store, storage: Storage) -> None:
        self.store, self.storage = store, storage
        self._made = MadeEvaluations(store._database, storage)
        for value in (1.0, 0.0):
            self._made.add(rows=[a_row(0, "x", exact=value)], scores=[score("exact", value)])

    def write(self, answer: str, note: str) -> None:
        newest = self.store.list_evaluations("nightly")[0]
        assert newest.scores_path is not None
        row = a_row(0, answer, prompt=answer, custom_id=note, notes={"exact": note}, exact=0.0)
        self._made.rewrite(newest.scores_path, [row])


@pytest.fixture(scope="module")
def scene(migrated_sqlite: Path) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        with sqlite_store(migrated_sqlite, Path(folder)) as store:
            yield Scene(store, storage)


@pytest.mark.quick
def test_one_run_alone_is_worth_a_page(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    made.add(rows=answered(0.7, 1), scores=[score("exact", 0.7)], verdict=Verdict.UNGATED)

    root = harmless(render(report_of(store, storage)))

    assert "This is the only run so far" in root.text
    assert root.text.count("There is nothing to compare with: no run of the series was") == 3
    assert "no gate" in root.one("section", class_="verdict").text
    assert "row_timeout" in root.text


@pytest.mark.quick
def test_a_run_that_failed_says_why_and_shows_the_last_scores(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    first = made.add(rows=answered(0.7, 1), scores=[score("exact", 0.7)])
    failed = made.add(
        state=EvaluationState.FAILED, verdict=Verdict.FAILED, error_code="job_failed",
        error_message="job job_x failed",
    )  # fmt: skip

    root = harmless(render(report_of(store, storage)))

    assert failed in root.one("header").text
    assert "job job_x failed (job_failed)" in root.one("section", class_="verdict").text
    assert f"These are the scores of {first}" in root.text


@pytest.mark.quick
def test_less_may_be_better_and_one_run_both(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    """A score that should fall; and a baseline that is the run before has one column for both."""
    gate = {"against": "baseline", "rules": ["latency:rise<=0.1"], "alpha": 0.05, "missing": 0}
    spec = a_spec("latency", gate=gate)
    first = made.add(scores=[score("latency", 3.5)], spec=spec)
    both = [
        comparison(role, "latency", first, difference=-1.5, better=3, worse=40, p_value=0.01)
        for role in Role
    ]
    finding = {"rule": "latency:p", "passed": None, "sentence": "nothing to compare with"}
    made.add(scores=[score("latency", 2.0)], comparisons=both, spec=spec, findings=[finding])

    root = harmless(render(report_of(store, storage)))

    table, *_ = root.all("table")
    assert [th.text for th in table.all("th", scope="col")][5:] == [
        "against the baseline and the run before"
    ]
    row = table.one("tbody").text
    assert "(less is better)" in row
    assert "▲ better" in row
    assert "40 better, 3 worse" in row
    assert "not judged: nothing to compare with" in root.one("section", class_="verdict").text


@pytest.mark.quick
def test_a_series_without_scores_has_a_page(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    made.add(state=EvaluationState.SKIPPED, error_message="an earlier one still ran")

    root = harmless(render(report_of(store, storage)))

    assert "an earlier one still ran" in root.text
    assert "No run of this series was completed yet" in root.text


@pytest.mark.quick
def test_files_that_are_gone_take_only_their_parts_with_them(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    add_series(made)
    for path in storage.root.rglob("*.parquet"):
        path.unlink()

    root = harmless(render(report_of(store, storage)))

    assert "Rows cannot be compared: the scores of eval_" in root.text
    assert "Reasons are not known: the scores of eval_" in root.text
    assert len(list(root.all("figure"))) == 2


@pytest.mark.slow
def test_a_page_has_bounds(made: MadeEvaluations, store: Store, storage: Storage) -> None:
    """Rows that are all texts, slices without end: the page says what it leaves out."""
    long = "<&\"'> " * 2_000
    many = [
        score("exact", 0.5, slice_column="topic", slice_value=f"t{i}") for i in range(2_000)
    ]  # fmt: skip
    for value in (1.0, 0.0):
        rows = [a_row(i, f"{value} {long}", prompt=long, exact=value) for i in range(600)]
        made.add(rows=rows, scores=[score("exact", value), *many])

    page = render(report_of(store, storage, examples=1000))

    root = harmless(page)
    assert len(page.encode()) < MAX_BYTES + 20_000
    shown_there = len(list(root.all("details", class_="example")))
    assert 10 < shown_there < 600
    assert f"{600 - shown_there} more are left out" in root.text
    assert "1,940 are left out" in root.text


@pytest.mark.quick
def test_json_is_the_data_of_the_page(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    ids = add_series(made)

    found = json.loads(json.dumps(report_json(report_of(store, storage))))

    assert found["evaluation"]["id"] == ids["newest"]
    assert found["evaluation"]["verdict"] == "regressed"
    assert [run["id"] for run in found["runs"]][-1] == ids["newest"]
    assert len(found["runs"]) == 10
    results = found["results"]
    assert [s["scorer"] for s in results["scores"]] == ["exact", "f1"]
    assert {c["role"] for c in results["comparisons"]} == {"baseline", "previous"}
    assert results["against"]["evaluation"] == ids["baseline"]
    rows = results["against"]["rows"]
    assert rows["worse"] >= len(rows["worse_rows"]) > 0
    assert rows["worse_rows"][0]["before"]["scores"]["exact"] == 1.0
    assert "secret-token" not in json.dumps(found)
