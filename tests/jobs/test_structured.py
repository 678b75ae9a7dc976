"""Structured output: every way to ask for it, and what is wrong with some."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.grammar.spec import MAX_GRAMMAR_BYTES as ENGINE_MAX
from engine.grammar.spec import GrammarKind
from jobs.errors import RowError, UsageError
from jobs.job_options import check_sampling
from jobs.keys import Kind, Meaning, meaning
from jobs.prompts import PromptRules
from jobs.rows import Row
from jobs.structured import MAX_GRAMMAR_BYTES, NAMES, check_grammar
from jobs.validation import RowValidator

pytestmark = pytest.mark.quick

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
TEXT = json.dumps(SCHEMA, separators=(",", ":"))
OBJECT = '{"type":"object"}'

TAKEN: list[tuple[str, Any, tuple[str, str, str] | None]] = [
    ("response_format", {"type": "text"}, None),
    ("response_format", {"type": "json_object"}, ("json_schema", OBJECT, "response_format")),
    ("response_format", {"type": "json_object", "schema": SCHEMA},
     ("json_schema", TEXT, "response_format.schema")),
    ("response_format",
     {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}},
     ("json_schema", TEXT, "response_format.json_schema.schema")),
    ("response_format", json.dumps({"type": "json_object"}),
     ("json_schema", OBJECT, "response_format")),
    ("structured_outputs", {"json": SCHEMA}, ("json_schema", TEXT, "structured_outputs.json")),
    ("structured_outputs", {"json": TEXT}, ("json_schema", TEXT, "structured_outputs.json")),
    ("structured_outputs", {"json_object": True},
     ("json_schema", OBJECT, "structured_outputs.json_object")),
    ("structured_outputs", {"json_object": False}, None),
    ("structured_outputs", {"regex": "[ab]+", "json": None, "disable_any_whitespace": False},
     ("regex", "[ab]+", "structured_outputs.regex")),
    ("structured_outputs", {"choice": ["yes", "né"]},
     ("choice", '["yes","né"]', "structured_outputs.choice")),
    ("structured_outputs", {"grammar": "root ::= \"a\""},
     ("ebnf", "root ::= \"a\"", "structured_outputs.grammar")),
    ("structured_outputs", {}, None),
    ("json_schema", SCHEMA, ("json_schema", TEXT, "json_schema")),
    ("json_schema", True, ("json_schema", "true", "json_schema")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "expected"), TAKEN)
def test_each_way_to_ask_has_one_form(
    name: str, value: Any, expected: tuple[str, str, str] | None
) -> None:
    found = check_grammar({name: value})
    wanted = (
        None if expected is None else dict(zip(("kind", "text", "field"), expected, strict=True))
    )
    assert found == wanted
    if found is not None:
        assert found["kind"] in set(GrammarKind)
        inside = check_grammar({name: value}, "body.")
        assert inside is not None
        assert inside["field"] == "body." + found["field"]


REFUSED: list[tuple[str, Any, str, str]] = [
    ("response_format", [], "wrong_type", "response_format"),
    ("response_format", "{", "invalid_json", "response_format"),
    ("response_format", {}, "invalid_parameter", "response_format.type"),
    ("response_format", {"type": "xml"}, "invalid_parameter", "response_format.type"),
    ("response_format", {"type": "json_schema"}, "wrong_type", "response_format.json_schema"),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "n"}},
     "missing_field", "response_format.json_schema.schema"),
    ("response_format", {"type": "json_schema", "json_schema": {"schema": []}},
     "wrong_type", "response_format.json_schema.schema"),
    ("response_format", {"type": "json_schema", "json_schema": {"shema": {}}},
     "unknown_field", "response_format.json_schema.shema"),
    ("structured_outputs", 1, "wrong_type", "structured_outputs"),
    ("structured_outputs", {"regexp": "a"}, "unknown_field", "structured_outputs.regexp"),
    ("structured_outputs", {"regex": "a", "json": {}},
     "invalid_parameter", "structured_outputs.regex"),
    ("structured_outputs", {"regex": ["a"]}, "wrong_type", "structured_outputs.regex"),
    ("structured_outputs", {"regex": ""}, "invalid_parameter", "structured_outputs.regex"),
    ("structured_outputs", {"regex": "\ud800"}, "invalid_utf8", "structured_outputs.regex"),
    ("structured_outputs", {"grammar": 5}, "wrong_type", "structured_outputs.grammar"),
    ("structured_outputs", {"choice": []}, "invalid_parameter", "structured_outputs.choice"),
    ("structured_outputs", {"choice": "a"}, "wrong_type", "structured_outputs.choice"),
    ("structured_outputs", {"choice": ["a", 1]}, "wrong_type", "structured_outputs.choice[1]"),
    ("structured_outputs", {"choice": [""]},
     "invalid_parameter", "structured_outputs.choice[0]"),
    ("structured_outputs", {"json": "nothing"}, "invalid_json", "structured_outputs.json"),
    ("structured_outputs", {"json_object": 1}, "wrong_type", "structured_outputs.json_object"),
    ("structured_outputs", {"json": {}, "disable_any_whitespace": True},
     "unsupported_parameter", "structured_outputs.disable_any_whitespace"),
    ("json_schema", "x", "invalid_json", "json_schema"),
    ("json_schema", {"enum": ["x" * 1_100_000]}, "grammar_too_large", "json_schema"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "code", "field"), REFUSED)
def test_what_cannot_be_is_refused_with_its_field(
    name: str, value: Any, code: str, field: str
) -> None:
    for prefix in ("", "body."):
        with pytest.raises(RowError) as caught:
            check_grammar({name: value}, prefix)
        assert (caught.value.code, caught.value.field) == (code, prefix + field)
        assert len(str(caught.value)) < 300


def test_the_engine_has_the_same_limit() -> None:
    assert MAX_GRAMMAR_BYTES == ENGINE_MAX


def validate(**fields: Any) -> Row:
    return RowValidator(PromptRules()).validate(3, {"prompt": "Hi", **fields})


def test_a_row_carries_one_grammar() -> None:
    row = validate(response_format={"type": "json_object"}, max_tokens=5, structured_outputs=None)
    assert json.loads(row.params or b"") == {
        "max_tokens": 5,
        "grammar": {"kind": "json_schema", "text": OBJECT, "field": "response_format"},
    }
    both = validate(response_format={"type": "text"}, json_schema={})
    assert both.error is not None
    assert (both.error.code, both.error.field) == ("invalid_parameter", "response_format")


def test_a_row_that_wants_plain_text_says_so() -> None:
    """It may stand against what the job has for all rows."""
    assert json.loads(validate(response_format={"type": "text"}).params or b"") == {"grammar": None}


@pytest.mark.parametrize(
    ("url", "rest"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
    ],
)
def test_a_line_of_a_batch_file_asks_in_its_body(url: str, rest: dict[str, Any]) -> None:
    def of(body: dict[str, Any]) -> Row:
        fields = {"custom_id": "a", "method": "POST", "url": url, "body": {**rest, **body}}
        return RowValidator(PromptRules()).validate(1, fields)

    row = of({"structured_outputs": {"choice": ["a"]}})
    assert json.loads(row.params or b"") == {
        "grammar": {"kind": "choice", "text": '["a"]', "field": "body.structured_outputs.choice"}
    }
    bad = of({"response_format": {"type": "json_schema", "json_schema": {}}})
    assert bad.error is not None
    assert bad.error.field == "body.response_format.json_schema.schema"


def test_it_does_not_stand_beside_the_body() -> None:
    fields = {
        "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi"},
        "response_format": {"type": "json_object"},
    }  # fmt: skip
    row = RowValidator(PromptRules()).validate(1, fields)
    assert row.error is not None
    assert row.error.field == "response_format"


def test_a_job_may_ask_it_for_all_rows() -> None:
    found = check_sampling({"max_tokens": 5, "json_schema": SCHEMA, "response_format": None})
    assert found == {
        "max_tokens": 5,
        "grammar": {"kind": "json_schema", "text": TEXT, "field": "json_schema"},
    }
    with pytest.raises(UsageError, match="no schema"):
        check_sampling({"response_format": {"type": "json_schema", "json_schema": {}}})
    with pytest.raises(UsageError, match="both response_format and structured_outputs"):
        check_sampling({"response_format": {"type": "text"}, "structured_outputs": {"regex": "a"}})


def test_the_names_are_known() -> None:
    for name in NAMES:
        assert meaning(name) == Meaning(Kind.GRAMMAR)
    assert meaning("responseFormat") == Meaning(Kind.MISSPELT, "response_format")
