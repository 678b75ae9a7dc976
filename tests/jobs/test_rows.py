"""Validation of one row."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from jobs.prompts import PromptRules
from jobs.rows import Row
from jobs.template import PromptTemplate
from jobs.validation import RowValidator

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "now"}}


def validate(fields: dict[str, Any], **rules: Any) -> Row:
    return RowValidator(PromptRules(**rules)).validate(7, fields)


def chat(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


def content(value: Any) -> dict[str, Any]:
    return chat({"role": "user", "content": value})


BAD_ROWS: list[tuple[dict[str, Any], str, str | None]] = [
    ({}, "missing_prompt", "prompt"),
    ({"prompt": None}, "missing_prompt", "prompt"),
    ({"promt": "hi"}, "missing_prompt", "prompt"),
    ({"prompt": ""}, "empty_prompt", "prompt"),
    ({"prompt": 5}, "wrong_type", "prompt"),
    ({"prompt": ["hi"]}, "wrong_type", "prompt"),
    ({"prompt": "a", **chat(USER)}, "prompt_and_messages", None),
    ({"messages": []}, "empty_messages", "messages"),
    ({"messages": "hi"}, "wrong_type", "messages"),
    ({"messages": USER}, "wrong_type", "messages"),
    (chat("hi"), "wrong_type", "messages[0]"),
    (chat(USER, None), "wrong_type", "messages[1]"),
    (chat({"content": "hi"}), "missing_field", "messages[0].role"),
    (chat(USER, USER, {"role": "usr", "content": "x"}), "unknown_role", "messages[2].role"),
    (chat({"role": "function", "content": "x"}), "unknown_role", "messages[0].role"),
    (chat({"role": 1, "content": "x"}), "wrong_type", "messages[0].role"),
    (chat({"role": "user"}), "missing_field", "messages[0].content"),
    (content(None), "missing_field", "messages[0].content"),
    (content(5), "wrong_type", "messages[0].content"),
    (content({"type": "text", "text": "x"}), "wrong_type", "messages[0].content"),
    (content(["x"]), "wrong_type", "messages[0].content[0]"),
    (
        content([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]),
        "unsupported_content",
        "messages[0].content[1].type",
    ),
    (content([{"text": "x"}]), "missing_field", "messages[0].content[0].type"),
    (content([{"type": "text"}]), "missing_field", "messages[0].content[0].text"),
    (content([{"type": "text", "text": 1}]), "wrong_type", "messages[0].content[0].text"),
    (chat(USER | {"tool_calls": [1]}), "unknown_field", "messages[0].tool_calls"),
    (
        content([{"type": "text", "text": "x", "cache_control": {}}]),
        "unknown_field",
        "messages[0].content[0].cache_control",
    ),
    ({"prompt": "x", "temprature": 1}, "unknown_field", "temprature"),
    ({"prompt": "x", "maxTokens": 1}, "unknown_field", "maxTokens"),
    ({"prompt": "x", "max_new_tokens": 1}, "unknown_field", "max_new_tokens"),
    ({"Prompt": "x"}, "unknown_field", "Prompt"),
    ({"prompt": "x", "typical_p": 0.1}, "unsupported_parameter", "typical_p"),
    ({"prompt": "x", "typicalP": 0.1}, "unsupported_parameter", "typicalP"),
    ({"prompt": "x", "guided_json": {}}, "unsupported_parameter", "guided_json"),
    ({"prompt": "x", "response_format": {}}, "invalid_parameter", "response_format.type"),
    ({"prompt": "x", "stream": True}, "unsupported_parameter", "stream"),
    ({"prompt": "x", "n": 0}, "invalid_parameter", "n"),
    ({"prompt": "x", "logprobs": True}, "wrong_type", "logprobs"),
    ({"prompt": "x", "top_logprobs": 5}, "unsupported_parameter", "top_logprobs"),
    ({"prompt": "x", "tools": [TOOL]}, "not_a_chat", "tools"),
    ({"prompt": "x", "chat_template_kwargs": {"a": 1}}, "not_a_chat", "chat_template_kwargs"),
    ({"prompt": "x", "reasoning_effort": "low"}, "not_a_chat", "reasoning_effort"),
    ({"prompt": "x", "temperature": -1}, "invalid_parameter", "temperature"),
    ({"prompt": "x", "max_tokens": 1.0}, "wrong_type", "max_tokens"),
    ({"prompt": "x", "ignore_eos": 0}, "wrong_type", "ignore_eos"),
    ({"prompt": "x", "stop": [""]}, "invalid_parameter", "stop[0]"),
    ({"prompt": "x", "custom_id": ""}, "invalid_custom_id", "custom_id"),
    ({"prompt": "x", "custom_id": "x" * 513}, "invalid_custom_id", "custom_id"),
    ({"prompt": "x", "custom_id": 1.5}, "wrong_type", "custom_id"),
    ({"prompt": "x", "custom_id": True}, "wrong_type", "custom_id"),
]


@pytest.mark.parametrize(("fields", "code", "field"), BAD_ROWS)
def test_a_bad_row_says_which_field_and_why(
    fields: dict[str, Any], code: str, field: str | None
) -> None:
    row = validate(fields)
    assert row.error is not None
    assert (row.error.code, row.error.field, row.error.line) == (code, field, 7)
    assert row.prompt is row.messages is row.params is None
    assert len(row.error.message) > 10


def test_a_refused_row_keeps_its_id_and_its_data() -> None:
    row = validate({"prompt": "", "custom_id": "a", "channel": "mail"})
    assert row.error is not None
    assert (row.custom_id, row.extra) == ("a", b'{"channel":"mail"}')
    row = validate({"prompt": "x", "custom_id": [], "channel": "mail"})
    assert row.error is not None
    assert (row.custom_id, row.extra) == (None, b'{"channel":"mail"}')


def test_a_prompt_with_parameters() -> None:
    row = validate(
        {
            "prompt": "h\u00e9\0",
            "custom_id": "a",
            "stop": "x",
            "seed": 3,
            "top_k": None,
            "typical_p": None,
        }
    )
    assert row == Row(
        7, custom_id="a", prompt="h\u00e9\0".encode(), params=b'{"stop":["x"],"seed":3}'
    )


def test_an_integer_is_a_custom_id() -> None:
    assert validate({"prompt": "x", "custom_id": 12}).custom_id == "12"
    assert validate({"prompt": "x", "custom_id": "x" * 512}).error is None


def test_messages_keep_role_and_content_alone_and_text_parts_are_joined() -> None:
    row = validate(
        chat(
            {"content": "be brief", "role": "developer", "name": None},
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("a ", "b")]},
            {"role": "assistant", "content": ""},
            {"role": "tool", "content": []},
        )
    )
    assert row.messages == (
        b'[{"role":"developer","content":"be brief"},{"role":"user","content":"a b"},'
        b'{"role":"assistant","content":""},{"role":"tool","content":""}]'
    )


def test_what_is_nested_too_deep_is_refused_though_it_could_be_read() -> None:
    fields = orjson.loads(b'{"prompt":"x","deep":' + b"[" * 500 + b"]" * 500 + b"}")
    row = validate(fields | {"custom_id": "a"})
    assert row.error is not None
    assert row.error.code == "nesting_too_deep"
    assert row.custom_id == "a"


def test_a_long_key_does_not_make_a_long_message() -> None:
    row = validate(chat(USER | {"k" * 10**6: 1}))
    assert row.error is not None
    assert row.error.field is not None
    assert len(row.error.message) + len(row.error.field) < 600


def messages(row: Row) -> list[tuple[str, str]]:
    assert row.messages is not None, row.error
    return [(m["role"], m["content"]) for m in orjson.loads(row.messages)]


def test_a_system_text_makes_a_chat_of_a_prompt() -> None:
    row = validate({"prompt": "hi"}, system="be kind")
    assert messages(row) == [("system", "be kind"), ("user", "hi")]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_row_keeps_its_own_instructions(role: str) -> None:
    assert messages(validate(chat(USER), system="S"))[0] == ("system", "S")
    own = chat({"role": role, "content": "mine"}, USER)
    assert messages(validate(own, system="S")) == [(role, "mine"), ("user", "hi")]


def test_a_prompt_column_makes_prompt_and_messages_data() -> None:
    row = validate(
        {"question": "why?", "prompt": "p", "messages": 1, "Prompt": 2}, prompt_column="question"
    )
    assert row.prompt == b"why?"
    assert orjson.loads(row.extra or b"") == {"prompt": "p", "messages": 1, "Prompt": 2}


def test_a_prompt_column_may_have_a_name_that_is_otherwise_refused() -> None:
    assert validate({"functions": "f(x)"}, prompt_column="functions").prompt == b"f(x)"


def test_a_missing_prompt_column_tells_the_keys() -> None:
    row = validate({"prompt": "p", "body": "b"}, prompt_column="question")
    assert row.error is not None
    assert (row.error.code, row.error.field) == ("missing_prompt", "question")
    assert "'prompt', 'body'" in row.error.message


def test_a_template_makes_the_prompt_and_its_names_are_data() -> None:
    template = PromptTemplate("{{ typical_p }} {{ prompt }} {{ max_tokens }} {{ tools }}")
    fields = {"typical_p": 3, "prompt": "p", "max_tokens": 5, "tools": "saw"}
    row = validate(fields, template=template)
    assert row.prompt == b"3 p 5 saw"
    assert orjson.loads(row.extra or b"") == {"typical_p": 3, "prompt": "p", "tools": "saw"}
    assert row.params == b'{"max_tokens":5}'


def test_a_template_with_a_system_text_makes_a_chat() -> None:
    row = validate({"q": "hi"}, template=PromptTemplate("Q: {{ q }}"), system="S")
    assert messages(row) == [("system", "S"), ("user", "Q: hi")]


@pytest.mark.parametrize(
    ("source", "code"),
    [("{{ nope }}", "undefined_variable"), ("{{ 1 / 0 }}", "template_error"), ("", "empty_prompt")],
)
def test_a_row_that_the_template_cannot_use_is_refused(source: str, code: str) -> None:
    row = validate({"q": "hi"}, template=PromptTemplate(source))
    assert row.error is not None
    assert row.error.code == code


def test_half_a_surrogate_pair_from_a_template_is_refused() -> None:
    row = validate({"q": "hi"}, template=PromptTemplate(r"{{ '\ud800' }}"))
    assert row.error is not None
    assert row.error.code == "invalid_utf8"
    row = validate({"q": "hi"}, template=PromptTemplate(r"{{ '\ud800' }}"), system="S")
    assert row.error is not None
    assert row.error.code == "invalid_utf8"
