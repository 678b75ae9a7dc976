"""The specification that the options of a command make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.evaluation_options import EvaluationOptions
from jobs.errors import UsageError
from jobs.records.evaluations import Role

pytestmark = pytest.mark.quick

LEAST: dict[str, Any] = {"inputs": ["/rows.jsonl"], "model": "m", "scorer": ["exact"]}


def test_all_that_is_given_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jinja").write_text("{{ question }}")
    options = EvaluationOptions(
        inputs=["evals/*.parquet", "s3://bucket/x.jsonl"], model="./llama",
        scorer=["exact:as=e", "f1"], target="answer", slice=["topic"],
        gate=["e>=0.5", "e:drop<=2%"],
        against=Role.PREVIOUS, allow_missing="2%", notify=["https://example.com/x"], seed=7,
        template=tmp_path / "t.jinja", temperature=0.0, max_tokens=8, priority=0, stop=["\n"],
    )  # fmt: skip
    assert options.spec().to_json() == {
        "version": 1,
        "inputs": [str(tmp_path / "evals/*.parquet"), "s3://bucket/x.jsonl"],
        "model": str(tmp_path / "llama"),
        "target": "answer",
        "scorers": [
            {"name": "e", "scorer": "exact", "options": {}},
            {"name": "f1", "scorer": "f1", "options": {}},
        ],
        "submit": {
            "max_tokens": 8,
            "priority": 0,
            "stop": ["\n"],
            "temperature": 0.0,
            "template": "{{ question }}",
        },
        "slices": ["topic"],
        "gate": {
            "against": "previous", "rules": ["e>=0.5", "e:drop<=2%"], "alpha": 0.05,
            "missing": 0.02,
        },
        "dataset": "frozen",
        "notify": ["https://example.com/x"],
        "seed": 7,
    }  # fmt: skip


def test_without_any_there_is_no_gate() -> None:
    spec = EvaluationOptions(**LEAST).spec()
    assert (spec.gate, spec.seed, dict(spec.submit)) == (None, 0, {})


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    whole = EvaluationOptions(**LEAST, gate=["exact>=0.5"], max_tokens=8, temperature=1.0).spec()
    path.write_text(json.dumps(whole.to_json()))
    same = EvaluationOptions(spec_file=path).spec()
    assert same == whole
    other = EvaluationOptions(spec_file=path, temperature=0.0, allow_missing="3", model="n").spec()
    assert dict(other.submit) == {"max_tokens": 8, "temperature": 0.0}
    assert other.gate is not None
    assert (other.gate.missing, other.gate.rules[0].text) == (3, "exact>=0.5")
    assert (other.model, other.inputs) == ("n", ("/rows.jsonl",))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"inputs": None}, "INPUT is missing"),
        ({"model": None}, "--model is missing"),
        ({"scorer": []}, "--scorer is missing"),
        ({"allow_missing": "few"}, "--allow-missing is 'few'"),
        ({"gate": ["f1>=0.5"]}, "'f1', which is no scorer"),
        ({"spec_file": Path("/nowhere.json")}, "--spec /nowhere.json cannot be read"),
    ],
)
def test_what_makes_no_evaluation_is_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        EvaluationOptions(**{**LEAST, **given}).spec()
