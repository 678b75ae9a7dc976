"""Validation of one input row.

A row that cannot be answered becomes an error row; nothing that a row holds raises.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from jobs.errors import RowError
from jobs.messages import check_messages
from jobs.parameters import Kind, Meaning, check_parameter, meaning, shown, wrong_type
from jobs.records import RowErrorInfo
from jobs.template import PromptTemplate

MAX_CUSTOM_ID_CHARS = 512
_INSTRUCTIONS = frozenset({"system", "developer"})
_PROMPT_NAMES = frozenset({"prompt", "messages"})


@dataclass(frozen=True, slots=True)
class PromptRules:
    """Where the prompt of a row comes from.

    Attributes:
        system: first message of rows that have no system or developer message. It turns a bare
            prompt into a chat.
        prompt_column: the key or column that is the prompt, instead of `prompt`.
        template: makes the prompt of all the row's columns.
    """

    system: str | None = None
    prompt_column: str | None = None
    template: PromptTemplate | None = None

    @property
    def named(self) -> bool:
        """Whether the prompt is named by an option: `prompt` and `messages` are data then."""
        return self.prompt_column is not None or self.template is not None

    def meaning(self, key: str) -> Meaning:
        """What a key or column is, under these rules."""
        if key == self.prompt_column:
            return Meaning(Kind.PROMPT)
        found = meaning(key)
        if self.named and (key in _PROMPT_NAMES or found.near in _PROMPT_NAMES):
            return Meaning(Kind.DATA)
        refused = found.kind in (Kind.UNSUPPORTED, Kind.MISSPELT)
        if refused and self.template is not None and key in self.template.names:
            return Meaning(Kind.DATA)
        return found


@dataclass(frozen=True, slots=True)
class Row:
    """An input row, ready for the normalized copy; texts are UTF-8.

    Exactly one of `prompt`, `messages` and `error` is set.

    Attributes:
        line: 1-based line (JSONL) or row (Parquet) of the input.
        messages: JSON list of {"role", "content"}, in this order of keys.
        chat: JSON object of what the chat template gets beside the messages.
        params: JSON object of the row's own sampling parameters.
        extra: JSON object of the keys that are the user's own.
    """

    line: int
    custom_id: str | None = None
    prompt: bytes | None = None
    messages: bytes | None = None
    chat: bytes | None = None
    params: bytes | None = None
    extra: bytes | None = None
    error: RowErrorInfo | None = None

    @property
    def size(self) -> int:
        """Bytes of text in it, about."""
        size = len(self.prompt or b"") + len(self.messages or b"") + len(self.params or b"")
        size += len(self.chat or b"")
        if self.error is not None:
            size += len(self.error.message)
        return size + len(self.extra or b"") + len(self.custom_id or "")


def refused(
    line: int, error: RowError, custom_id: str | None = None, extra: bytes | None = None
) -> Row:
    """The error row of `error`."""
    field = error.field if error.field is None else error.field[:200]
    info = RowErrorInfo(error.code, str(error), line, field)
    return Row(line, custom_id=custom_id, extra=extra, error=info)


class RowValidator:
    """Checks rows and brings them into the form of the normalized copy.

    Args:
        rules: where prompts come from.
        collect_extra: put keys that are the user's own into `Row.extra` (JSONL). Parquet
            columns are carried as columns instead.
    """

    def __init__(self, rules: PromptRules, collect_extra: bool = True) -> None:
        self.rules = rules
        self._collect_extra = collect_extra
        self._meanings: dict[str, Meaning] = {}

    def validate(self, line: int, fields: Mapping[str, Any]) -> Row:
        """The row of the given keys and values; never raises RowError."""
        own, extras, error = self._sort(fields)
        custom_id = extra = None
        try:
            extra = _dump_extra(extras) if self._collect_extra and extras else None
        except RowError as caught:
            error = error or caught
        try:
            custom_id = check_custom_id(own.get("custom_id"))
        except RowError as caught:
            error = error or caught
        try:
            if error is None:
                prompt, messages = self._prompt(fields)
                params = {
                    name: check_parameter(name, value)
                    for name, value in own.items()
                    if name != "custom_id" and value is not None
                }
                return Row(
                    line,
                    custom_id=custom_id,
                    prompt=prompt,
                    messages=messages,
                    params=_dump(params) if params else None,
                    extra=extra,
                )
        except RowError as caught:
            error = caught
        return refused(line, error, custom_id, extra)

    def _sort(
        self, fields: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], RowError | None]:
        """Custom id and parameters; the user's own keys; the first key that is refused."""
        own, extras, error = {}, {}, None
        for key, value in fields.items():
            found = self._meanings.get(key) or self._judge(key)
            kind = found.kind
            if kind is Kind.PARAMETER or kind is Kind.CUSTOM_ID:
                own[key] = value
            elif kind is Kind.DATA:
                extras[key] = value
            elif kind is Kind.MISSPELT:
                error = error or _misspelt(key, found.near)
            elif kind is Kind.UNSUPPORTED and value is not None:
                error = error or _unsupported(key)
        return own, extras, error

    def _judge(self, key: str) -> Meaning:
        found = self.rules.meaning(key)
        if len(self._meanings) < 4096:  # a file in which every row has new keys stays bounded
            self._meanings[key] = found
        return found

    def _prompt(self, fields: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
        """(prompt, None) or (None, messages)."""
        rules = self.rules
        value: Any
        if rules.template is not None:
            name, value = "prompt", rules.template.render(fields)
        else:
            name = rules.prompt_column or "prompt"
            value = fields.get(name)
            messages = None if rules.named else fields.get("messages")
            if messages is not None:
                if value is not None:
                    raise RowError(
                        "prompt_and_messages",
                        "the row has both prompt and messages; leave one of them out",
                    )
                return None, self._chat(check_messages(messages))
        if value is None:
            raise _missing_prompt(name, fields, rules.named)
        if not isinstance(value, str):
            raise wrong_type(name, value, "a string")
        if not value:
            raise RowError("empty_prompt", f"{name} is empty; the model needs some text", name)
        if rules.system is not None:
            return None, self._chat([{"role": "user", "content": value}])
        return _encode(value, name), None

    def _chat(self, messages: list[dict[str, str]]) -> bytes:
        system = self.rules.system
        if system is not None and not any(m["role"] in _INSTRUCTIONS for m in messages):
            messages.insert(0, {"role": "system", "content": system})
        try:
            return _dump(messages)
        except TypeError:
            raise RowError("invalid_utf8", "a message holds half a surrogate pair") from None


def check_custom_id(value: Any) -> str | None:
    """The id that the user gave the row. An integer is taken as its decimal digits.

    Raises:
        RowError: `wrong_type`, or `invalid_custom_id` if it is empty or too long.
    """
    if value is None:
        return None
    if type(value) is int:
        value = str(value)
    if not isinstance(value, str):
        raise wrong_type("custom_id", value, "a string or an integer")
    if not 0 < len(value) <= MAX_CUSTOM_ID_CHARS:
        raise RowError(
            "invalid_custom_id",
            f"custom_id has {len(value)} characters; it must have 1 to {MAX_CUSTOM_ID_CHARS}",
            "custom_id",
        )
    return value


def _dump_extra(extras: dict[str, Any]) -> bytes:
    try:
        return _dump(extras)
    except TypeError:  # orjson writes fewer levels than it reads
        raise RowError("nesting_too_deep", "the row's own keys are nested too deep") from None


def _dump(value: Any) -> bytes:
    # The bytes that orjson returns keep the 4 kB and more that it wrote into; a copy does not.
    return bytes(memoryview(orjson.dumps(value)))


def _encode(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RowError("invalid_utf8", f"{field} holds half a surrogate pair", field) from None


def _misspelt(key: str, near: str | None) -> RowError:
    return RowError(
        "unknown_field",
        f"unknown key {shown(key)}; did you mean {near}? (if it is data of yours, rename it)",
        key,
    )


def _unsupported(key: str) -> RowError:
    return RowError(
        "unsupported_parameter",
        f"pagemill does not support {key} yet; leave it out (if it is data of yours, rename it)",
        key,
    )


def _missing_prompt(name: str, fields: Mapping[str, Any], named: bool) -> RowError:
    if name in fields:
        return RowError("missing_prompt", f"{name} is null; the model needs some text", name)
    keys = ", ".join(shown(key) for key in list(fields)[:10]) or "none"
    if named:
        return RowError("missing_prompt", f"the row has no {shown(name)} (its keys: {keys})", name)
    if {"method", "url", "body"} <= fields.keys():
        return RowError(
            "openai_batch_line",
            "this is a line of an OpenAI batch file (method, url, body), which pagemill does not "
            "read yet; put body.messages and the parameters at the top level",
            "body",
        )
    near = [k for k in fields if difflib.get_close_matches(k, ("prompt", "messages"), 1, 0.8)]
    meant = f"; did you mean {shown(near[0])} to be one of them?" if near else ""
    return RowError(
        "missing_prompt",
        f"the row has neither prompt nor messages (its keys: {keys}){meant}; --prompt-column "
        "names another key",
        "prompt",
    )
