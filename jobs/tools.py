"""Validation of what the chat template gets beside the text: tools, tool calls, variables.

What a tool's parameters mean is between the user and the model; only the outer form is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.errors import RowError
from jobs.parameters import invalid_parameter, read_json, shown, wrong_type

# Arguments of the function that applies a chat template, which are no variables of the template.
RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "self",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def check_tools(value: Any, field: str = "tools") -> list[dict[str, Any]]:
    """The functions that the model may call, as they are.

    Raises:
        RowError: with the field at fault, such as `tools[0].function.name`.
    """
    value = read_json(value, field)
    if not isinstance(value, list):
        raise wrong_type(field, value, 'a list of {"type": "function", "function": {…}}')
    for i, tool in enumerate(value):
        _check_tool(f"{field}[{i}]", tool)
    return value


def check_tool_calls(value: Any, field: str) -> list[dict[str, Any]]:
    """Calls of an assistant message, with `arguments` as an object, as chat templates read them.

    Raises:
        RowError: with the field at fault, such as `messages[1].tool_calls[0].function.name`.
    """
    value = read_json(value, field)
    if not isinstance(value, list):
        raise wrong_type(field, value, 'a list of {"id": …, "type": "function", "function": {…}}')
    return [_tool_call(f"{field}[{i}]", call) for i, call in enumerate(value)]


def check_template_kwargs(value: Any, field: str = "chat_template_kwargs") -> dict[str, Any]:
    """Variables for the chat template.

    Raises:
        RowError: `wrong_type`, or `invalid_parameter` for a name that the template cannot get.
    """
    value = read_json(value, field)
    if not isinstance(value, dict):
        raise wrong_type(field, value, "an object of variables for the chat template")
    for name in value:
        if not isinstance(name, str):
            raise wrong_type(f"a name in {field}", name, "a string")
        if name in RESERVED:
            raise RowError(
                "invalid_parameter",
                f"{field} has {name!r}, which is no variable of a chat template that may be set; "
                "leave it out",
                f"{field}.{name}",
            )
    return value


def beside_the_messages(given: Mapping[str, Any], is_chat: bool, prefix: str) -> dict[str, Any]:
    """What the chat template gets beside the messages; empty where that is nothing.

    Args:
        given: those of `tools`, `tool_choice`, `chat_template_kwargs` and `reasoning_effort` that
            the row has.
        prefix: `body.` for the body of a batch line.

    Raises:
        RowError: one of them is not valid, or the row is no chat.
    """
    tools = check_tools(given.get("tools", []), f"{prefix}tools")
    kwargs = check_template_kwargs(
        given.get("chat_template_kwargs", {}), f"{prefix}chat_template_kwargs"
    )
    if not _shows_tools(given.get("tool_choice", "auto"), prefix):
        tools = []
    if "reasoning_effort" in given:
        effort = _reasoning_effort(given["reasoning_effort"], f"{prefix}reasoning_effort")
        kwargs = {"reasoning_effort": effort} | kwargs
    found: dict[str, Any] = {"tools": tools} if tools else {}
    if kwargs:
        found["template_kwargs"] = kwargs
    if found and not is_chat:
        name = "tools" if tools else next(key for key in given if not key.startswith("tool"))
        raise RowError(
            "not_a_chat",
            f"{prefix}{name} goes to the chat template, and the row is a raw prompt, which does "
            f"not; give messages, or leave {name} out",
            f"{prefix}{name}",
        )
    return found


def _shows_tools(choice: Any, prefix: str) -> bool:
    """What `tool_choice` says; that the model must call a tool cannot be had."""
    if choice in ("auto", "none"):
        return bool(choice == "auto")
    raise RowError(
        "unsupported_parameter",
        f"{prefix}tool_choice is {shown(choice)}; it may be auto or none: whether the model calls "
        "a tool is its own choice",
        f"{prefix}tool_choice",
    )


def _reasoning_effort(value: Any, field: str) -> str:
    """A variable of some chat templates that has a name of its own at OpenAI and vLLM."""
    if not isinstance(value, str):
        raise wrong_type(field, value, "a string")
    if value not in _EFFORTS:
        raise invalid_parameter(field, value, f"one of {', '.join(_EFFORTS)}")
    return value


def _check_tool(field: str, tool: Any) -> None:
    function = _function(field, tool)
    description, parameters = function.get("description"), function.get("parameters")
    if description is not None and not isinstance(description, str):
        raise wrong_type(f"{field}.function.description", description, "a string")
    if parameters is not None and not isinstance(parameters, dict):
        raise wrong_type(f"{field}.function.parameters", parameters, "an object (a JSON schema)")


def _tool_call(field: str, call: Any) -> dict[str, Any]:
    function = _function(field, call)
    _check_keys(field, call, ("id", "type", "function", "index"))
    _check_keys(f"{field}.function", function, ("name", "arguments"))
    checked: dict[str, Any] = {}
    call_id = call.get("id")
    if call_id is not None:
        if not isinstance(call_id, str):
            raise wrong_type(f"{field}.id", call_id, "a string")
        checked["id"] = call_id
    where = f"{field}.function.arguments"
    arguments = _arguments(where, function.get("arguments"))
    checked["type"] = "function"
    checked["function"] = {"name": function["name"], "arguments": arguments}
    return checked


def _function(field: str, value: Any) -> dict[str, Any]:
    """The named function of a tool or of a call."""
    if not isinstance(value, dict):
        raise wrong_type(field, value, 'an object {"type": "function", "function": {…}}')
    kind, function = value.get("type"), value.get("function")
    if kind is not None and kind != "function":
        raise RowError(
            "unsupported_content",
            f"{field}.type is {shown(kind)}; pagemill knows tools of the type 'function' only",
            f"{field}.type",
        )
    where = f"{field}.function"
    if function is None:
        raise RowError("missing_field", f"{field} has no function", where)
    if not isinstance(function, dict):
        raise wrong_type(where, function, "an object with a name")
    name = function.get("name")
    if name is None:
        raise RowError("missing_field", f"{where} has no name", f"{where}.name")
    if not isinstance(name, str):
        raise wrong_type(f"{where}.name", name, "a string")
    if not name:
        raise RowError("missing_field", f"{where}.name is empty", f"{where}.name")
    return function


def _check_keys(field: str, value: dict[str, Any], read: Sequence[str]) -> None:
    for key, item in value.items():
        if key not in read and item is not None:
            raise RowError(
                "unknown_field",
                f"{field} has a key {shown(key)} that would not reach the model; leave it out",
                f"{field}.{key}",
            )


def _arguments(field: str, value: Any) -> dict[str, Any]:
    if value is None or value == "":  # a call without arguments
        return {}
    value = read_json(value, field)
    if not isinstance(value, dict):
        raise wrong_type(field, value, "an object, or the JSON of one")
    return value
