"""Validation of a chat: a list of messages, each with a role and text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from jobs.errors import RowError
from jobs.parameters import shown, wrong_type
from jobs.tools import check_tool_calls

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

# Keys beside role and content that chat templates read, in the order of the normalized copy,
# and the roles whose messages have them.
_FURTHER: dict[str, frozenset[str]] = {
    "name": ROLES,
    "tool_calls": frozenset({"assistant"}),
    "tool_call_id": frozenset({"tool"}),
    "reasoning_content": frozenset({"assistant"}),
}
_EMPTY = ("annotations", "tool_calls")  # answers of OpenAI's carry them as empty lists


def check_messages(value: Any, field: str = "messages") -> list[dict[str, Any]]:
    """The messages of a chat as {"role", "content", …}; text parts are joined.

    Beside `role` and `content` a message may hold `name`, `tool_calls`, `tool_call_id` and
    `reasoning_content`; `content` is None only beside `tool_calls`.

    Args:
        field: what the row calls the messages.

    Raises:
        RowError: with the field at fault, such as `messages[2].role`.
    """
    if not isinstance(value, list):
        raise wrong_type(field, value, 'a list of {"role": …, "content": …}')
    if not value:
        raise RowError("empty_messages", f"{field} is empty; give at least one", field)
    return [_message(f"{field}[{i}]", message) for i, message in enumerate(value)]


def _message(field: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise wrong_type(field, message, 'an object {"role": …, "content": …}')
    role, content = message.get("role"), message.get("content")
    if len(message) == 2 and type(role) is type(content) is str and role in ROLES:
        return {"role": role, "content": content}  # nearly all messages are as plain as this
    further = _further(field, message)
    if role is None:
        raise RowError("missing_field", f"{field} has no role", f"{field}.role")
    if not isinstance(role, str):
        raise wrong_type(f"{field}.role", role, "a string")
    if role not in ROLES:
        raise RowError(
            "unknown_role",
            f"{field}.role is {shown(role)}; it must be system, developer, user, assistant or tool",
            f"{field}.role",
        )
    if isinstance(content, list):
        content = "".join(_part(f"{field}.content[{i}]", part) for i, part in enumerate(content))
    checked = {"role": role, "content": content}
    checked |= _check_further(field, role, further)
    if content is None and "tool_calls" not in checked:
        raise RowError("missing_field", f"{field} has no content", f"{field}.content")
    if content is not None and not isinstance(content, str):
        raise wrong_type(f"{field}.content", content, "a string or a list of text parts")
    return checked


def _part(field: str, part: Any) -> str:
    if not isinstance(part, dict):
        raise wrong_type(field, part, 'an object {"type": "text", "text": …}')
    if part.get("type") is not None and part["type"] != "text":
        raise RowError(
            "unsupported_content",
            f"{field}.type is {shown(part['type'])}; pagemill reads text parts only",
            f"{field}.type",
        )
    for key in ("type", "text"):
        if part.get(key) is None:
            raise RowError("missing_field", f"{field} has no {key}", f"{field}.{key}")
    for key, item in part.items():
        if key not in ("type", "text") and item is not None:
            raise _unknown(field, key, ("type", "text"))
    if not isinstance(part["text"], str):
        raise wrong_type(f"{field}.text", part["text"], "a string")
    return part["text"]


def _further(field: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """The keys beside role and content that are set (Parquet sets all the others to null)."""
    found: dict[str, Any] = {}
    for key, item in message.items():
        if item is None or key in ("role", "content") or (item == [] and key in _EMPTY):
            continue
        name = "reasoning_content" if key == "reasoning" else key  # as vLLM calls it
        if name not in _FURTHER:
            raise _unknown(field, key, ("role", "content", *_FURTHER))
        if name in found and found[name] != item:
            raise RowError(
                "unknown_field",
                f"{field} has both reasoning and reasoning_content; leave one of them out",
                f"{field}.reasoning",
            )
        found[name] = item
    return found


def _check_further(field: str, role: str, found: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for key, roles in _FURTHER.items():
        if key not in found:
            continue
        if role not in roles:
            raise RowError(
                "unknown_field",
                f"{field}.{key} would not reach the model: only messages of the role "
                f"{' or '.join(sorted(roles))} have it; leave it out",
                f"{field}.{key}",
            )
        if key == "tool_calls":
            checked[key] = check_tool_calls(found[key], f"{field}.{key}")
        elif isinstance(found[key], str):
            checked[key] = found[key]
        else:
            raise wrong_type(f"{field}.{key}", found[key], "a string")
    return checked


def _unknown(field: str, key: str, read: Collection[str]) -> RowError:
    return RowError(
        "unknown_field",
        f"{field} has a key {shown(key)} that would not reach the model; leave it out "
        f"({', '.join(read)} are read)",
        f"{field}.{key}",
    )
