"""docs/evaluations.md names all that a report's JSON has, and its numbers are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobs.report.data import gather
from jobs.report.shapes import report_json
from jobs.report.views import FEW_ROWS
from jobs.storage import Storage
from jobs.store import Store
from tests.support.made_evaluations import MadeEvaluations
from tests.support.made_series import add_series

pytestmark = pytest.mark.quick

PAGE = (Path(__file__).parents[2] / "docs" / "evaluations.md").read_text("utf-8")
SECTION = PAGE.partition("\n## The report\n")[2].partition("\n## ")[0]


def test_every_field_of_the_json_is_named(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    add_series(made)
    found = report_json(gather(store, storage, None, None, 30, 50))
    table = SECTION.partition("prints an object")[2]
    named = {part for name in re.findall(r"`([a-z_.]+)`", table) for part in name.split(".")}

    results = found["results"]
    for shape in (found, results, results["against"], results["against"]["rows"]):
        assert shape.keys() <= named


def test_numbers_are_those_of_the_code() -> None:
    assert f"those of under {FEW_ROWS} rows" in SECTION
