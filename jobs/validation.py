"""Validation of one input row.

A row that cannot be answered becomes an error row; nothing that a row holds raises.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import orjson

from jobs import openai_lines
from jobs.beam_rules import check_beams
from jobs.continuations import read_continuations
from jobs.errors import RowError
from jobs.keys import LOGPROBS_OF_ANSWERS, LONGEST_NAME, Kind, Meaning
from jobs.kind_rules import check_row_of_kind
from jobs.kinds import JobKind
from jobs.messages import check_messages
from jobs.parameters import check_parameter, shown, wrong_type
from jobs.prompts import PromptRules
from jobs.rows import Row, refused
from jobs.schema import COMPLETION, EMBEDDINGS
from jobs.structured import GRAMMAR, check_grammar
from jobs.tools import beside_the_messages
from jobs.unsupported import check_neutral

MAX_CUSTOM_ID_CHARS = 512
_INSTRUCTIONS = frozenset({"system", "developer"})
_BODY = "body."
_WHOLE_LINE = openai_lines.LINE_KEYS | {"custom_id"}


class _Keys:
    """The keys of a row, sorted by what they mean; those that are null are left out."""

    __slots__ = ("chat", "error", "extras", "grammar", "params")

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.chat: dict[str, Any] = {}
        self.grammar: dict[str, Any] = {}
        self.extras: dict[str, Any] = {}
        self.error: RowError | None = None  # of the first key that is refused


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
        self._unwraps = rules.takes_lines
        self._meanings: dict[str, Meaning] = {}

    def validate(self, line: int, fields: Mapping[str, Any]) -> Row:
        """The row of the given keys and values; never raises RowError."""
        wrapped = self._is_line(fields)
        keys = self._sort_line(fields) if wrapped else self._sort(fields, "")
        custom_id, extra, error = self._kept(fields, keys)
        try:
            if error is None and wrapped:
                return self._body(line, fields, custom_id, extra)
            if error is None:
                prompt, messages = self._prompt(fields)
                row = _answerable(self.rules, line, custom_id, extra, prompt, messages, keys, "")
                if self.rules.kind is JobKind.SCORE:
                    row = replace(row, continuations=read_continuations(fields))
                return row
        except RowError as caught:
            error = caught
        assert error is not None
        return refused(line, error, custom_id, extra)

    def refuse(
        self, line: int, fields: Mapping[str, Any], error: RowError, unsure: Collection[str] = ()
    ) -> Row:
        """The error row of the given keys and values, with what is kept of them.

        Args:
            unsure: keys whose value is not known, and not kept.
        """
        keys = self._sort_line(fields) if self._is_line(fields) else self._sort(fields, "")
        keys.extras = {name: v for name, v in keys.extras.items() if name not in unsure}
        known = {} if "custom_id" in unsure else fields
        custom_id, extra, _ = self._kept(known, keys)
        return refused(line, error, custom_id, extra)

    def _is_line(self, fields: Mapping[str, Any]) -> bool:
        return "body" in fields and self._unwraps and openai_lines.is_batch_line(fields)

    def _kept(
        self, fields: Mapping[str, Any], keys: _Keys
    ) -> tuple[str | None, bytes | None, RowError | None]:
        """The custom id and the user's own data, where they can be read, and the first error."""
        error = keys.error
        custom_id = extra = None
        try:
            extra = _dump_extra(keys.extras) if self._collect_extra and keys.extras else None
        except RowError as caught:
            error = error or caught
        try:
            custom_id = check_custom_id(fields.get("custom_id"))
        except RowError as caught:
            error = error or caught
        return custom_id, extra, error

    def _body(
        self, line: int, fields: Mapping[str, Any], custom_id: str | None, extra: bytes | None
    ) -> Row:
        """The row in a line of a batch file."""
        endpoint, row = openai_lines.unwrap(fields, self.rules.models, self.rules.kind)
        keys = self._sort(row, _BODY)
        for key in keys.extras:
            raise openai_lines.unknown_key(key)
        if keys.error is not None:
            raise keys.error
        prompt, messages = self._question(row, endpoint)
        return _answerable(self.rules, line, custom_id, extra, prompt, messages, keys, _BODY)

    def _sort_line(self, fields: Mapping[str, Any]) -> _Keys:
        """What stands beside the body: the custom id, and the user's own keys."""
        if fields.keys() == _WHOLE_LINE:  # nearly all of them
            return _Keys()
        beside = {k: v for k, v in fields.items() if k not in openai_lines.LINE_KEYS}
        keys = self._sort(beside, "")
        for name in (*keys.params, *keys.chat, *keys.grammar):
            keys.error = keys.error or openai_lines.misplaced(name)
        return keys

    def _sort(self, fields: Mapping[str, Any], prefix: str) -> _Keys:
        keys = _Keys()
        for key, value in fields.items():
            found = self._meanings.get(key) or self._judge(key)
            kind = found.kind
            if key in LOGPROBS_OF_ANSWERS and isinstance(value, list) and not prefix:
                kind = Kind.DATA  # of an answer: the row is the output of another job
            if kind is Kind.PARAMETER:
                if value is not None:
                    keys.params[key] = value
            elif kind is Kind.DATA:
                keys.extras[key] = value
            elif kind is Kind.CHAT:
                if value is not None:
                    keys.chat[key] = value
            elif kind is Kind.GRAMMAR:
                if value is not None:
                    keys.grammar[key] = value
            elif kind is Kind.MISSPELT:
                if keys.error is None:
                    keys.error = (
                        openai_lines.unknown_key(key) if prefix else _misspelt(key, found.name)
                    )
            elif kind is Kind.UNSUPPORTED and keys.error is None:
                try:
                    check_neutral(key, found.name or key, value, fields, prefix)
                except RowError as error:
                    keys.error = error
        return keys

    def _judge(self, key: str) -> Meaning:
        found = self.rules.meaning(key)
        # A file in which every row has new keys, or very long ones, stays bounded.
        if len(self._meanings) < 4096 and len(key) <= LONGEST_NAME:
            self._meanings[key] = found
        return found

    def _question(self, row: Mapping[str, Any], endpoint: str) -> tuple[bytes | None, bytes | None]:
        """(prompt, None) or (None, messages) of a body."""
        name = {COMPLETION: "prompt", EMBEDDINGS: "input"}.get(endpoint, "messages")
        value = row.get(name)
        if value is None:
            keys = ", ".join(shown(key) for key in list(row)[:10]) or "none"
            raise RowError(
                "missing_prompt",
                f"body has no {name}, which {endpoint} needs (its keys: {keys})",
                f"body.{name}",
            )
        if name == "messages":
            return None, self._chat(check_messages(value, "body.messages"))
        if self.rules.system is not None:
            raise RowError(
                "not_a_chat",
                f"--system is for chats, and {endpoint} asks for raw text; leave one of them "
                "out, or ask /v1/chat/completions",
                "url",
            )
        return _text(value, f"body.{name}"), None

    def _prompt(self, fields: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
        """(prompt, None) or (None, messages)."""
        rules = self.rules
        value: Any
        if rules.template is not None:
            name, value = "prompt", rules.template.render(fields)
        else:
            name, value = self._named_prompt(fields)
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
        if rules.system is None:
            return _text(value, name, rules.kind is JobKind.SCORE), None
        _check_text(value, name)
        return None, self._chat([{"role": "user", "content": value}])

    def _named_prompt(self, fields: Mapping[str, Any]) -> tuple[str, Any]:
        """The key that holds the prompt, and its value; None where there is none."""
        names = self.rules.prompt_names
        given = [name for name in names if fields.get(name) is not None]
        if len(given) > 1:
            raise RowError(
                "prompt_and_input",
                "the row has both prompt and input, which are the same; leave one of them out",
            )
        name = given[0] if given else names[0]
        return name, fields.get(name)

    def _chat(self, messages: list[dict[str, Any]]) -> bytes:
        system = self.rules.system
        if system is not None and not any(m["role"] in _INSTRUCTIONS for m in messages):
            messages.insert(0, {"role": "system", "content": system})
        return _dump(messages, "a message")


def _answerable(
    rules: PromptRules,
    line: int,
    custom_id: str | None,
    extra: bytes | None,
    prompt: bytes | None,
    messages: bytes | None,
    keys: _Keys,
    prefix: str,
) -> Row:
    check_row_of_kind(rules.kind, (*keys.params, *keys.grammar), messages is not None, prefix)
    params = {name: check_parameter(name, v, prefix + name) for name, v in keys.params.items()}
    if keys.grammar:
        params[GRAMMAR] = check_grammar(keys.grammar, prefix)
    check_beams(params, rules.sampling, prefix)
    chat = beside_the_messages(keys.chat, messages is not None, prefix) if keys.chat else None
    return Row(
        line,
        custom_id=custom_id,
        prompt=prompt,
        messages=messages,
        chat=_dump(chat, "what the chat template gets") if chat else None,
        params=_dump(params, "a parameter") if params else None,
        extra=extra,
    )


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
    return _dump(extras, "the row's own keys")


def _dump(value: Any, what: str) -> bytes:
    try:
        # The bytes that orjson returns keep the 4 kB and more that it wrote into; a copy does not.
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError as error:
        raise _unwritable(what, str(error)) from None


def _unwritable(what: str, reason: str) -> RowError:
    if "ecursion" in reason:  # orjson writes fewer levels than it reads
        return RowError("nesting_too_deep", f"{what} is nested too deep")
    if "surrogates" in reason:
        return RowError("invalid_utf8", f"{what} holds half a surrogate pair")
    return RowError("wrong_type", f"{what} holds a value that JSON does not have: {reason}")


def _check_text(value: Any, field: str, may_be_empty: bool = False) -> None:
    if not isinstance(value, str):
        raise wrong_type(field, value, "a string")
    if not value and not may_be_empty:
        raise RowError("empty_prompt", f"{field} is empty; the model needs some text", field)


def _text(value: Any, field: str, may_be_empty: bool = False) -> bytes:
    """A raw prompt, as UTF-8."""
    _check_text(value, field, may_be_empty)
    try:
        text: bytes = value.encode()
    except UnicodeEncodeError:
        raise RowError("invalid_utf8", f"{field} holds half a surrogate pair", field) from None
    return text


def _misspelt(key: str, near: str | None) -> RowError:
    return RowError(
        "unknown_field",
        f"unknown key {shown(key)}; did you mean {near}? (if it is data of yours, rename it)",
        key,
    )


def _missing_prompt(name: str, fields: Mapping[str, Any], named: bool) -> RowError:
    if openai_lines.lacks_body(fields) and not named:
        return openai_lines.missing("body")
    if name in fields:
        return RowError("missing_prompt", f"{name} is null; the model needs some text", name)
    keys = ", ".join(shown(key) for key in list(fields)[:10]) or "none"
    if named:
        return RowError("missing_prompt", f"the row has no {shown(name)} (its keys: {keys})", name)
    near = [k for k in fields if difflib.get_close_matches(k, ("prompt", "messages"), 1, 0.8)]
    meant = f"; did you mean {shown(near[0])} to be one of them?" if near else ""
    return RowError(
        "missing_prompt",
        f"the row has neither prompt nor messages (its keys: {keys}){meant}; --prompt-column "
        "names another key, and --template makes the prompt of several",
        "prompt",
    )
