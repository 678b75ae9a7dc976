"""Chats with tools: keys of messages beside role and content."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from jobs.errors import RowError
from jobs.messages import check_messages

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "What is the weather in Paris?"}


def call(**changes: Any) -> dict[str, Any]:
    return {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    } | changes


def function(**changes: Any) -> dict[str, Any]:
    return call(function={"name": "get_weather", "arguments": "{}"} | changes)


def assistant(*calls: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)} | keys


def test_a_conversation_with_tools_reaches_the_template_as_templates_read_it() -> None:
    """Shaped like the example of OpenAI's guide to function calling."""
    checked = check_messages(
        [
            USER | {"name": "ann"},
            {"tool_calls": [call()], "role": "assistant", "content": None, "refusal": None},
            {"tool_call_id": "call_1", "role": "tool", "content": '{"celsius": 21}'},
            {"reasoning_content": "hm", "content": "21 degrees.", "role": "assistant"},
        ]
    )
    assert checked == [
        {"role": "user", "content": "What is the weather in Paris?", "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
                }
            ],
        },
        {"role": "tool", "content": '{"celsius": 21}', "tool_call_id": "call_1"},
        {"role": "assistant", "content": "21 degrees.", "reasoning_content": "hm"},
    ]
    # Rows are put side by side by this text: the order of keys is the same in all of them.
    assert [list(message) for message in checked] == [
        ["role", "content", "name"],
        ["role", "content", "tool_calls"],
        ["role", "content", "tool_call_id"],
        ["role", "content", "reasoning_content"],
    ]


@pytest.mark.parametrize(
    "message",
    [
        assistant(call()),
        {"role": "assistant", "tool_calls": [call()]},
        assistant({"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}),
        assistant(call(index=0)),
        {"role": "assistant", "tool_calls": json.dumps([call()])},
    ],
)
def test_content_may_be_missing_beside_tool_calls(message: dict[str, Any]) -> None:
    (checked,) = check_messages([message])
    assert checked["content"] is None
    (made,) = checked["tool_calls"]
    assert made["type"] == "function"
    assert made["function"] == {"name": "get_weather", "arguments": {"city": "Paris"}}


@pytest.mark.parametrize("arguments", ["", None, "{}", " {} ", {}])
def test_a_call_without_arguments(arguments: Any) -> None:
    (checked,) = check_messages([assistant(function(arguments=arguments))])
    assert checked["tool_calls"][0]["function"]["arguments"] == {}


def test_an_answer_of_openais_can_be_given_back_as_it_came() -> None:
    answer = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [],
    }
    assert check_messages([USER, answer])[1] == {"role": "assistant", "content": "hi"}


def test_reasoning_has_two_names() -> None:
    for keys in ({"reasoning": "r"}, {"reasoning": "r", "reasoning_content": "r"}):
        (checked,) = check_messages([{"role": "assistant", "content": "a"} | keys])
        assert checked["reasoning_content"] == "r"


BAD: list[tuple[dict[str, Any], str, str]] = [
    (USER | {"tool_calls": [call()]}, "unknown_field", "messages[0].tool_calls"),
    (USER | {"tool_call_id": "a"}, "unknown_field", "messages[0].tool_call_id"),
    (USER | {"name": 1}, "wrong_type", "messages[0].name"),
    (USER | {"audio": {"id": "a"}}, "unknown_field", "messages[0].audio"),
    (USER | {"function_call": {}}, "unknown_field", "messages[0].function_call"),
    (
        {"role": "assistant", "content": "a", "reasoning": "x", "reasoning_content": "y"},
        "unknown_field",
        "messages[0].reasoning",
    ),
    ({"role": "tool", "tool_call_id": "a"}, "missing_field", "messages[0].content"),
    ({"role": "assistant", "tool_calls": []}, "missing_field", "messages[0].content"),
    ({"role": "assistant", "tool_calls": 1}, "wrong_type", "messages[0].tool_calls"),
    ({"role": "assistant", "tool_calls": "["}, "invalid_json", "messages[0].tool_calls"),
    (assistant(1), "wrong_type", "messages[0].tool_calls[0]"),
    (assistant(call(), {}), "missing_field", "messages[0].tool_calls[1].function"),
    (assistant(call(function="f")), "wrong_type", "messages[0].tool_calls[0].function"),
    (assistant(call(type="web_search")), "unsupported_content", "messages[0].tool_calls[0].type"),
    (assistant(call(id=7)), "wrong_type", "messages[0].tool_calls[0].id"),
    (assistant(call(extra=7)), "unknown_field", "messages[0].tool_calls[0].extra"),
    (
        assistant(function(parsed_arguments={})),
        "unknown_field",
        "messages[0].tool_calls[0].function.parsed_arguments",
    ),
    (
        assistant(function(name=None)),
        "missing_field",
        "messages[0].tool_calls[0].function.name",
    ),
    (assistant(function(name="")), "missing_field", "messages[0].tool_calls[0].function.name"),
    (assistant(function(name=3)), "wrong_type", "messages[0].tool_calls[0].function.name"),
    (
        assistant(function(arguments="{")),
        "invalid_json",
        "messages[0].tool_calls[0].function.arguments",
    ),
    (
        assistant(function(arguments="[1]")),
        "wrong_type",
        "messages[0].tool_calls[0].function.arguments",
    ),
    (
        assistant(function(arguments="\ud800")),
        "invalid_json",
        "messages[0].tool_calls[0].function.arguments",
    ),
]


@pytest.mark.parametrize(("message", "code", "field"), BAD)
def test_a_bad_message_says_which_field_and_why(
    message: dict[str, Any], code: str, field: str
) -> None:
    with pytest.raises(RowError) as caught:
        check_messages([message])
    assert (caught.value.code, caught.value.field) == (code, field)
    assert len(str(caught.value)) > 10


@pytest.mark.parametrize("role", [[], {}, None, 1, "usr", True])
@pytest.mark.parametrize("content", ["a", [], {}, None, 1])
def test_no_role_or_content_raises_anything_else(role: Any, content: Any) -> None:
    with pytest.raises(RowError):
        check_messages([{"role": role, "content": content}])


def test_the_field_bears_the_name_that_the_row_gives_it() -> None:
    with pytest.raises(RowError, match=r"^body\.messages\[1\] has no content$") as caught:
        check_messages([USER, {"role": "user"}], "body.messages")
    assert caught.value.field == "body.messages[1].content"


def test_arguments_keep_the_order_of_their_keys() -> None:
    text = '{"b": 1, "a": {"z": 1, "y": 2}}'
    (checked,) = check_messages([assistant(function(arguments=text))])
    written = orjson.dumps(checked["tool_calls"][0]["function"]["arguments"]).decode()
    assert written == text.replace(" ", "")
