"""Validation of a chat: a list of messages, each with a role and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.errors import RowError
from jobs.parameters import shown, wrong_type

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def check_messages(value: Any) -> list[dict[str, str]]:
    """The messages of a chat as {"role", "content"}; text parts are joined.

    Raises:
        RowError: with the field at fault, such as `messages[2].role`.
    """
    if not isinstance(value, list):
        raise wrong_type("messages", value, 'a list of {"role": …, "content": …}')
    if not value:
        raise RowError("empty_messages", "messages is empty; give at least one", "messages")
    return [_message(f"messages[{i}]", message) for i, message in enumerate(value)]


def _message(field: str, message: Any) -> dict[str, str]:
    if not isinstance(message, dict):
        raise wrong_type(field, message, 'an object {"role": …, "content": …}')
    role, content = message.get("role"), message.get("content")
    if len(message) > 2 or role is None or content is None:
        _check_keys(field, message, ("role", "content"))
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
    if not isinstance(content, str):
        raise wrong_type(f"{field}.content", content, "a string or a list of text parts")
    return {"role": role, "content": content}


def _part(field: str, part: Any) -> str:
    if not isinstance(part, dict):
        raise wrong_type(field, part, 'an object {"type": "text", "text": …}')
    if part.get("type") is not None and part["type"] != "text":
        raise RowError(
            "unsupported_content",
            f"{field}.type is {shown(part['type'])}; pagemill reads text parts only",
            f"{field}.type",
        )
    _check_keys(field, part, ("type", "text"))
    if not isinstance(part["text"], str):
        raise wrong_type(f"{field}.text", part["text"], "a string")
    return part["text"]


def _check_keys(field: str, value: Mapping[str, Any], wanted: tuple[str, str]) -> None:
    """Each wanted key is set, and no other one (Parquet structs set the others to null)."""
    for key in wanted:
        if value.get(key) is None:
            raise RowError("missing_field", f"{field} has no {key}", f"{field}.{key}")
    for key, item in value.items():
        if key not in wanted and item is not None:
            raise RowError(
                "unknown_field",
                f"{field} has a key {shown(key)} that would not reach the model; leave it out "
                f"({wanted[0]} and {wanted[1]} are read)",
                f"{field}.{key}",
            )
