"""`json_schema`."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import UsageError
from jobs.evaluation.rows import Score
from jobs.evaluation.scorers import bounded, schemas
from jobs.evaluation.spec import ScorerSpec
from tests.support.scored_rows import scored, value

pytestmark = pytest.mark.quick

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "maxItems": 2}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ('{"n": 1}', Score(1.0)),
        (' {"n": 1, "tags": ["a"]}\n', Score(1.0)),
        ('{"n": 1.5}', Score(0.0, "$.n: 1.5 is not of type 'integer'")),
        ("{}", Score(0.0, "$: 'n' is a required property")),
        ('{"n": 1, "m": 2}', Score(0.0, "$: 'm' is no property that is allowed")),
        ("[]", Score(0.0, "$: [] is not of type 'object'")),
    ],
)
def test_answers(answer: str, score: Score) -> None:
    assert scored("json_schema", answer, schema=SCHEMA) == score


@pytest.mark.parametrize(
    "answer", ["", "n: 1", "{'n': 1}", '{"n": NaN}', '{"n": 1} so', "[" * 9_000]
)
def test_what_is_no_json(answer: str) -> None:
    score = scored("json_schema", answer, schema=SCHEMA)
    assert score.value == 0
    assert str(score.note).startswith("no JSON: ")


@pytest.mark.parametrize(
    ("answer", "fenced", "worth"),
    [
        ('```json\n{"n": 1}\n```', False, 0),
        ('```json\n{"n": 1}\n```', True, 1),
        ('```\n{"n": 1}```', True, 1),
        ('{"n": 1}', True, 1),
        ('Here:\n```json\n{"n": 1}\n```', True, 0),
        ('```json\n{"n": "x"}\n```', True, 0),
    ],
)
def test_a_fence_is_no_json_unless_it_may_be(answer: str, fenced: bool, worth: float) -> None:
    assert value("json_schema", answer, schema=SCHEMA, fenced=fenced) == worth


@pytest.mark.parametrize("target", [SCHEMA, json.dumps(SCHEMA), [{"type": "null"}, SCHEMA], True])
def test_the_schema_may_be_the_target(target: Any) -> None:
    assert value("json_schema", '{"n": 1}', target) == 1
    assert value("json_schema", "[", target) == 0


@pytest.mark.parametrize(
    ("target", "note"),
    [
        ("{", "the target is no JSON schema"),
        (5, "the target is no JSON schema"),
        ({"type": "number?"}, "no JSON schema: $.type: 'number?' is not valid"),
        ({"pattern": "("}, "no JSON schema: $.pattern: '(' is not a 'regex'"),
    ],
)
def test_a_target_that_is_no_schema_makes_the_row_missing(target: Any, note: str) -> None:
    score = scored("json_schema", "1", target)
    assert score.value is None
    assert str(score.note).startswith(note)


def test_a_schema_that_is_none_is_refused_at_once() -> None:
    spec = ScorerSpec("j", "json_schema", {"schema": {"type": "number?"}})
    with pytest.raises(UsageError, match=r"json_schema: no JSON schema: \$\.type"):
        spec.make()


@pytest.mark.parametrize("ref", ["http://example.com/x.json", "file:///etc/passwd", "x.json"])
def test_nothing_is_fetched(ref: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "socket")
    score = scored("json_schema", "1", schema={"$ref": ref})
    assert score == Score(None, f"the schema refers to {ref!r}, which is not in it")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # it would be fetched with one
def test_a_file_that_could_be_fetched_is_not(tmp_path: Path) -> None:
    path = tmp_path / "any.json"
    path.write_text("true")
    score = scored("json_schema", "1", schema={"$ref": path.as_uri()})
    assert score.value is None
    assert str(score.note).startswith(f"the schema refers to '{path.as_uri()[:99]}")


def test_a_reference_within_the_schema() -> None:
    tree = {"type": "array", "items": {"$ref": "#"}}
    assert value("json_schema", "[[], [[]]]", schema=tree) == 1
    assert value("json_schema", "[[], [1]]", schema=tree) == 0
    assert scored("json_schema", "[" * 900 + "]" * 900, schema=tree).value in (1, None)


def test_expressions_of_a_schema_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_SECONDS", 0.01)
    schemas._compiled.cache_clear()
    endless = "(a|aa)+$"
    text = "a" * 200 + "b"
    for schema, answer in (
        ({"pattern": endless}, text),
        ({"patternProperties": {endless: True}}, {text: 1}),
        ({"patternProperties": {endless: True}, "additionalProperties": False}, {text: 1}),
    ):
        score = scored("json_schema", json.dumps(answer), schema=schema)
        assert score.value is None
        assert "took over" in str(score.note)
    schemas._compiled.cache_clear()


@settings(max_examples=40)
@given(
    st.dictionaries(st.text("ab", max_size=3), st.integers() | st.text("ab", max_size=3)),
    st.sampled_from(["^a", "b$", "ab"]),
    st.sampled_from([True, False, {"type": "integer"}]),
)
def test_expressions_mean_what_they_mean_to_the_library(
    answer: dict[str, Any], pattern: str, rest: Any
) -> None:
    from jsonschema import Draft202012Validator

    schema = {
        "properties": {"a": True},
        "patternProperties": {pattern: {"pattern": "a", "type": "string"}},
        "additionalProperties": rest,
    }
    expected = Draft202012Validator(schema).is_valid(answer)
    assert value("json_schema", json.dumps(answer), schema=schema) == expected


@pytest.mark.parametrize("dialect", [7, None, [], {}, True, 1.5])
def test_a_schema_of_a_row_whose_dialect_is_no_text_is_missing(dialect: Any) -> None:
    found = scored("json_schema", "{}", {"$schema": dialect})
    assert found.value is None
    assert "$schema" in (found.note or "")


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"$ref": False, "$schema": "http://json-schema.org/draft-04/schema#"}, "1"),
        ({"items": {"$recursiveRef": "(", "$schema": "//["}}, "[1]"),
    ],
)
def test_a_schema_of_a_row_that_cannot_be_used_is_missing(schema: Any, answer: str) -> None:
    found = scored("json_schema", answer, schema)
    assert found.value is None
    assert "cannot be used" in (found.note or "")
