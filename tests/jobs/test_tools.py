"""Tools and variables for the chat template, in rows."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from jobs.prompts import PromptRules
from jobs.rows import Row
from jobs.tools import RESERVED
from jobs.validation import RowValidator

pytestmark = pytest.mark.quick

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": True,
    },
}


def validate(fields: dict[str, Any], **rules: Any) -> Row:
    return RowValidator(PromptRules(**rules)).validate(7, fields)


def beside(row: Row) -> Any:
    assert row.error is None, row.error
    return None if row.chat is None else orjson.loads(row.chat)


@pytest.mark.parametrize("tools", [[TOOL], json.dumps([TOOL])])
def test_tools_reach_the_template_as_they_are(tools: Any) -> None:
    row = validate(CHAT | {"tools": tools})
    assert beside(row) == {"tools": [TOOL]}
    assert row.chat == b'{"tools":' + orjson.dumps([TOOL]) + b"}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"tools": [], "chat_template_kwargs": {}}, None),
        ({"tools": None, "tool_choice": None}, None),
        ({"tools": [TOOL], "tool_choice": "auto"}, {"tools": [TOOL]}),
        ({"tools": [TOOL], "tool_choice": "none"}, None),
        ({"chat_template_kwargs": {"a": [1]}}, {"template_kwargs": {"a": [1]}}),
        ({"chat_template_kwargs": '{"a": 1}'}, {"template_kwargs": {"a": 1}}),
        ({"reasoning_effort": "low"}, {"template_kwargs": {"reasoning_effort": "low"}}),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            {"template_kwargs": {"reasoning_effort": "high"}},
        ),
        (
            {"tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}},
            {"tools": [TOOL], "template_kwargs": {"enable_thinking": False}},
        ),
    ],
)
def test_what_the_template_gets(given: dict[str, Any], expected: Any) -> None:
    row = validate(CHAT | given)
    assert beside(row) == expected
    assert row.params is row.extra is None


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": {}}, "wrong_type", "tools"),
    ({"tools": "["}, "invalid_json", "tools"),
    ({"tools": ["f"]}, "wrong_type", "tools[0]"),
    ({"tools": [TOOL, {}]}, "missing_field", "tools[1].function"),
    ({"tools": [{"type": "web_search"}]}, "unsupported_content", "tools[0].type"),
    ({"tools": [{"function": 1}]}, "wrong_type", "tools[0].function"),
    ({"tools": [{"function": {}}]}, "missing_field", "tools[0].function.name"),
    (
        {"tools": [{"function": {"name": "f", "description": 1}}]},
        "wrong_type",
        "tools[0].function.description",
    ),
    (
        {"tools": [{"function": {"name": "f", "parameters": []}}]},
        "wrong_type",
        "tools[0].function.parameters",
    ),
    ({"tools": [TOOL], "tool_choice": "required"}, "unsupported_parameter", "tool_choice"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        "unsupported_parameter",
        "tool_choice",
    ),
    ({"chat_template_kwargs": []}, "wrong_type", "chat_template_kwargs"),
    ({"chat_template_kwargs": "[]"}, "wrong_type", "chat_template_kwargs"),
    ({"reasoning_effort": "hard"}, "invalid_parameter", "reasoning_effort"),
    ({"reasoning_effort": 1}, "wrong_type", "reasoning_effort"),
]


@pytest.mark.parametrize(("given", "code", "field"), BAD)
def test_what_is_wrong_says_which_field_and_why(
    given: dict[str, Any], code: str, field: str
) -> None:
    row = validate(CHAT | given)
    assert row.error is not None
    assert (row.error.code, row.error.field) == (code, field)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_names_that_are_no_variables_of_a_template_are_refused(name: str) -> None:
    row = validate(CHAT | {"chat_template_kwargs": {name: 1}})
    assert row.error is not None
    assert (row.error.code, row.error.field) == (
        "invalid_parameter",
        f"chat_template_kwargs.{name}",
    )


def test_tools_that_are_nested_too_deep() -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"a": deep}
    row = validate(CHAT | {"tools": [{"function": {"name": "f", "parameters": deep}}]})
    assert row.error is not None
    assert row.error.code == "nesting_too_deep"


def test_a_raw_prompt_has_no_place_for_tools_until_it_is_a_chat() -> None:
    row = validate({"prompt": "hi", "tools": [TOOL]})
    assert row.error is not None
    assert (row.error.code, row.error.field) == ("not_a_chat", "tools")
    assert beside(validate({"prompt": "hi", "tools": [TOOL]}, system="S")) == {"tools": [TOOL]}
    assert beside(validate({"prompt": "hi", "tools": [TOOL], "tool_choice": "none"})) is None
    assert beside(validate({"prompt": "hi", "tools": [], "chat_template_kwargs": {}})) is None
