"""A real model answers real questions in the form that each asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema

from engine.grammar.spec import GrammarSpec
from engine.loading import resolve_model
from engine.request import FinishReason
from tests.support.grammars import answers, ask, choice, engine_of, regex, schema

MODEL = "smollm2-135m"
# Strings and lists have a greatest length, so that a small model comes to an end.
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "married": {"type": "boolean"},
    },
    "required": ["name", "age", "married"],
    "additionalProperties": False,
}
COLOURS = {
    "type": "array", "items": {"enum": ["red", "green", "blue", "white"]},
    "minItems": 2, "maxItems": 3,
}  # fmt: skip
RIVER = {
    "type": "object",
    "properties": {
        "river": {"type": "string", "maxLength": 16},
        "country": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 16}]},
    },
    "required": ["river", "country"],
    "additionalProperties": False,
}
DATE = {"type": "string", "format": "date"}
Check = Callable[[str], None]


def fits(wanted: dict[str, Any]) -> Check:
    def check(text: str) -> None:
        jsonschema.validate(
            json.loads(text), wanted, format_checker=jsonschema.FormatChecker(["date"])
        )

    return check


def matches(expression: str) -> Check:
    def check(text: str) -> None:
        assert re.fullmatch(expression, text)

    return check


def is_one_of(*texts: str) -> Check:
    def check(text: str) -> None:
        assert text in texts

    return check


def by_schema(wanted: dict[str, Any]) -> tuple[GrammarSpec, Check]:
    return schema(wanted), fits(wanted)


def by_regex(expression: str) -> tuple[GrammarSpec, Check]:
    return regex(expression), matches(expression)


def by_choice(*texts: str) -> tuple[GrammarSpec, Check]:
    return choice(*texts), is_one_of(*texts)


ASKED: dict[str, tuple[GrammarSpec, Check]] = {
    "Describe a person as JSON with name, age and married.": by_schema(PERSON),
    "Who wrote Hamlet? Answer as JSON with name, age and married.": by_schema(PERSON),
    "Name the colours of the French flag, as a JSON list.": by_schema(COLOURS),
    "Name a river and its country, as JSON.": by_schema(RIVER),
    "When did the first man walk on the moon? Answer with a date.": by_schema(DATE),
    "Write a phone number.": by_regex(r"\(\d{3}\) \d{3}-\d{4}"),
    "What is 17 + 25?": by_regex(r"The answer is \d{1,3}\."),
    "Give me an e-mail address.": by_regex(r"[a-z]{2,12}@[a-z]{2,12}\.(com|org)"),
    "Write a time of day.": by_regex(r"([01][0-9]|2[0-3]):[0-5][0-9]"),
    "Is the sea salty?": by_choice("yes", "no"),
    "How does 'I love this!' feel?": by_choice("positive", "negative", "neutral"),
    "What is the capital of France?": by_choice("Paris", "London", "Rome", "Madrid"),
}


def test_every_answer_has_its_form() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_model(MODEL).path)
    requests = []
    for number, (question, (grammar, _)) in enumerate(ASKED.items()):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        requests.append(
            ask(question, grammar, prompt, max_tokens=200, temperature=0.7 * (number % 2))
        )
    outputs = answers(engine_of(Path(MODEL)), requests)
    assert len(outputs) == len(ASKED) == 12
    for output in outputs:
        assert output.finish_reason is FinishReason.STOP, (output.request_id, output.text)
        ASKED[output.request_id][1](output.text)
