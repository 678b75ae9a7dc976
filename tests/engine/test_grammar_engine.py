"""Answers of random models fit their grammars, whatever is beside them in the batch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import Engine
from engine.errors import RequestError
from engine.grammar.spec import GrammarKind, GrammarSpec
from engine.request import FinishReason, RequestOutput
from tests.support.grammars import (
    PROMPT,
    answers,
    ask,
    choice,
    ebnf,
    engine_of,
    regex,
    schema,
    sentencepiece_model,
)
from tests.support.tiny_model import build_tiny_model

SCHEMAS: list[Any] = [
    {"type": "boolean"},
    {"type": "integer", "minimum": -5, "maximum": 300},
    {"enum": ["red", 7, None, {"deep": [1]}]},
    {"const": '漢字 \U0001f600 "quoted" \n'},
    {"type": "string", "minLength": 1, "maxLength": 5},
    {"type": "string", "pattern": "^[a-c]{2,4}-\\d{3}$"},
    {"type": "string", "format": "date"},
    {"type": ["null", "boolean"]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "prefixItems": [{"const": 1}, {"const": "x"}], "items": False, "minItems": 2},
    {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 2}]},
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "boolean"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/node",
    },
]
REGEXES = [
    r"[a-z]{3}-\d{2}", r"^(yes|no|maybe)$", r"(ab|cd){1,4}", r"\$\d+\.\d\d", r"é漢+x",
    r"\d{3}\\\$", r"(?i)hello", r"[^\x00-\x7f]{1,3}",
]  # fmt: skip
SUM = 'root ::= term ("+" term)*\nterm ::= [0-9]{1,3} | "(" root ")"\n'


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="module")
def engines(byte_level: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    return {
        "byte level": engine_of(byte_level),
        "byte fallback": engine_of(sentencepiece_model(tmp_path_factory.mktemp("pieces"))),
    }


@pytest.fixture(params=["byte level", "byte fallback"])
def engine(request: pytest.FixtureRequest, engines: dict[str, Engine]) -> Iterator[Engine]:
    yield engines[request.param]
    assert not engines[request.param].has_unfinished


def whole(outputs: list[RequestOutput]) -> list[str]:
    """The texts of the answers that were not cut; most must be whole for a test to mean much."""
    assert all(o.finish_reason in (FinishReason.STOP, FinishReason.LENGTH) for o in outputs)
    texts = [o.text for o in outputs if o.finish_reason is FinishReason.STOP]
    assert len(texts) >= len(outputs) // 2
    return texts


def test_answers_are_valid_by_their_schema(engine: Engine) -> None:
    asked = [
        ask(f"{i}.{seed}", schema(SCHEMAS[i]), seed=seed)
        for i in range(len(SCHEMAS))
        for seed in range(3)
    ]
    outputs = answers(engine, asked)
    whole(outputs)
    for request, output in zip(asked, outputs, strict=True):
        if output.finish_reason is FinishReason.STOP:
            wanted = SCHEMAS[int(request.request_id.split(".")[0])]
            jsonschema.validate(json.loads(output.text), wanted)


def test_greedy_answers_are_valid_too(engine: Engine) -> None:
    asked = [ask(str(i), schema(s), temperature=0.0) for i, s in enumerate(SCHEMAS)]
    for request, output in zip(asked, answers(engine, asked), strict=True):
        if output.finish_reason is FinishReason.STOP:
            jsonschema.validate(json.loads(output.text), SCHEMAS[int(request.request_id)])


@pytest.mark.parametrize("expression", REGEXES)
def test_answers_match_their_regular_expression(engine: Engine, expression: str) -> None:
    outputs = answers(engine, [ask(str(s), regex(expression), seed=s) for s in range(4)])
    for text in whole(outputs):
        assert re.fullmatch(expression, text), text


def test_an_answer_is_one_of_the_choices(engine: Engine) -> None:
    choices = ("yes", "no", "yes, but", 'a "quoted" one', "漢字", "two\nlines", "b\\s")
    outputs = answers(engine, [ask(str(s), choice(*choices), seed=s) for s in range(40)])
    assert {o.finish_reason for o in outputs} == {FinishReason.STOP}
    texts = {o.text for o in outputs}
    assert texts <= set(choices)
    assert len(texts) > 2


def test_answers_follow_a_grammar_in_either_notation(engine: Engine) -> None:
    lark = 'start: term ("+" term)*\nterm: /[0-9]{1,3}/ | "(" start ")"\n'
    for grammar in (ebnf(SUM), ebnf(lark)):
        for text in whole(answers(engine, [ask(str(s), grammar, seed=s) for s in range(6)])):
            assert re.fullmatch(r"[0-9+()]+", text)
            assert isinstance(eval(re.sub(r"\b0+(?=\d)", "", text)), int)


def test_the_token_limit_cuts_an_answer(engine: Engine) -> None:
    (output,) = answers(engine, [ask("r", regex("[ab]{50}"), max_tokens=7)])
    assert output.finish_reason is FinishReason.LENGTH
    assert output.completion_tokens == 7
    assert re.fullmatch("[ab]{7}", output.text)


def test_an_answer_that_is_whole_with_its_last_token_was_not_cut(engine: Engine) -> None:
    (output,) = answers(engine, [ask("r", regex("[ab]{7}"), max_tokens=7)])
    assert output.finish_reason is FinishReason.STOP
    assert re.fullmatch("[ab]{7}", output.text)


def test_the_model_may_end_where_the_text_may_end(engine: Engine) -> None:
    outputs = answers(engine, [ask(str(s), regex("a{1,200}"), seed=s) for s in range(60)])
    assert len({len(o.text) for o in outputs}) > 1
    assert all(re.fullmatch("a+", o.text) for o in outputs)


def test_who_ignores_the_end_of_the_text_goes_on_to_the_end_of_the_grammar(engine: Engine) -> None:
    asked = [ask(str(s), regex("a{1,50}"), seed=s, ignore_eos=True) for s in range(5)]
    for output in answers(engine, asked):
        assert (output.text, output.finish_reason) == ("a" * 50, FinishReason.STOP)


def test_a_text_may_be_empty(engine: Engine) -> None:
    for output in answers(engine, [ask(str(s), regex("a?"), seed=s) for s in range(3)]):
        assert output.text in ("", "a")
        assert output.finish_reason is FinishReason.STOP


def test_a_stop_string_ends_an_answer_before_it(engine: Engine) -> None:
    (output,) = answers(engine, [ask("r", regex("[ab]{20}c[ab]{20}"), stop=("c",))])
    assert output.finish_reason is FinishReason.STOP
    assert re.fullmatch("[ab]{20}", output.text)


def test_rows_without_a_grammar_get_what_they_get_alone(engine: Engine) -> None:
    free = [ask(f"free{i}", None, PROMPT[i:], seed=i, max_tokens=20) for i in range(6)]
    alone = [answers(engine, [request])[0].token_ids for request in free]
    mixed = [ask(f"bound{i}", schema(SCHEMAS[i]), seed=i) for i in range(len(SCHEMAS))]
    found = answers(engine, [r for pair in zip(free, mixed, strict=False) for r in pair])
    assert [o.token_ids for o in found if o.request_id.startswith("free")] == alone


def test_rows_with_a_grammar_get_what_they_get_alone(engine: Engine) -> None:
    asked = [ask(str(i), schema(s), seed=i) for i, s in enumerate(SCHEMAS)]
    alone = [answers(engine, [request])[0].token_ids for request in asked]
    assert [o.token_ids for o in answers(engine, asked)] == alone


def test_log_probabilities_are_the_models_own(engine: Engine) -> None:
    """A token that the grammar forces is as unlikely as the model finds it."""
    asked = ask("r", regex("zzz"), logprobs=3)
    plain = ask("p", None, max_tokens=1, logprobs=3)
    forced, free = answers(engine, [asked, plain])
    assert forced.text == "zzz"
    assert forced.logprobs is not None
    assert free.logprobs is not None
    assert forced.logprobs[0].top == free.logprobs[0].top
    assert all(t.logprob < -0.01 for t in forced.logprobs)


def test_a_preempted_answer_goes_on_where_it_was(byte_level: Path) -> None:
    asked = [ask(str(i), regex("[a-d]{60}"), PROMPT[:30], seed=i) for i in range(6)]
    calm = [o.text for o in answers(engine_of(byte_level), asked)]
    small = engine_of(byte_level, num_blocks=18, max_model_len=200)
    found = answers(small, asked)
    assert small.stats.preemptions > 0
    assert [o.text for o in found] == calm
    assert all(re.fullmatch("[a-d]{60}", text) for text in calm)


def test_an_aborted_request_leaves_nothing_behind(engine: Engine) -> None:
    for steps in range(4):
        engine.add(ask("gone", regex("[ab]{100}")))
        engine.add(ask("stays", regex("[ab]{10}")))
        outputs = [output for _ in range(steps) for output in engine.step()]
        engine.abort("gone")
        while engine.has_unfinished:
            outputs += engine.step()
        assert [o.request_id for o in outputs] == ["stays"]
        assert engine._grammars.num_held == 0
        assert not engine._grammars.matchers


def test_an_id_is_in_the_engine_once(engine: Engine) -> None:
    engine.add(ask("twin", regex("a")))
    for grammar in (regex("b"), None):
        with pytest.raises(RequestError, match="'twin' is still in the engine"):
            engine.add(ask("twin", grammar))
    while engine.has_unfinished:
        engine.step()


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"logit_bias": ((1 << 20, 1.0),)}, "logit_bias"),
        ({"allowed_token_ids": (1 << 20,)}, "allowed_token_ids"),
        ({"allowed_token_ids": (97,), "bad_words_ids": ((97,),)}, "allowed_token_ids"),
        ({"bad_words": ("x" * 100,)}, "bad_words"),
    ],
)
def test_rules_that_cannot_be_are_refused_beside_a_grammar_too(
    byte_level: Path, params: dict[str, Any], field: str
) -> None:
    """Before its grammar is compiled: in a step there is nobody to refuse a request to."""
    engine = engine_of(byte_level)
    with pytest.raises(RequestError) as refused:
        engine.add(ask("bad", regex("[ab]{5}"), **params))
    assert (refused.value.code, refused.value.field) == ("invalid_parameter", field)
    assert not engine.has_unfinished
    (output,) = answers(engine, [ask("bad", regex("[ab]{5}"))])
    assert re.fullmatch("[ab]{5}", output.text)


_scalars = st.sampled_from(
    [
        {"type": "boolean"}, {"type": "null"}, {"type": "integer", "minimum": 0, "maximum": 99},
        {"type": "string", "maxLength": 4}, {"enum": ["é", 2, False]}, {"const": {"k": []}},
    ]
)  # fmt: skip
_names = st.text(min_size=1, max_size=4)
_schemas = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some}),
        st.builds(
            lambda item, most: {"type": "array", "items": item, "maxItems": most},
            inner,
            st.integers(0, 3),
        ),
        st.builds(
            lambda parts, needed: {
                "type": "object",
                "properties": parts,
                "required": list(parts)[:needed],
                "additionalProperties": False,
            },
            st.dictionaries(_names, inner, max_size=3),
            st.integers(0, 3),
        ),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=25)
@given(_schemas, st.integers(0, 1000))
def test_any_schema_is_kept_to(engines: dict[str, Engine], wanted: Any, seed: int) -> None:
    for engine in engines.values():
        (output,) = answers(engine, [ask("r", schema(wanted), seed=seed, max_tokens=150)])
        assert output.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        if output.finish_reason is FinishReason.STOP:
            jsonschema.validate(json.loads(output.text), wanted)


_texts = st.text(min_size=1, max_size=6)


@settings(deadline=None, max_examples=25)
@given(st.lists(_texts, min_size=1, max_size=5, unique=True), st.integers(0, 1000))
def test_any_choice_is_kept_to(engines: dict[str, Engine], texts: list[str], seed: int) -> None:
    spec = GrammarSpec(GrammarKind.CHOICE, json.dumps(texts))
    for name, engine in engines.items():
        (output,) = answers(engine, [ask("r", spec, seed=seed)])
        if output.finish_reason is FinishReason.STOP:
            assert output.text in texts
        else:  # this tokenizer's decoder cuts a space at the start of a text
            assert name == "byte fallback"
            assert output.error_code == "invalid_grammar"
            assert all(text.startswith(" ") for text in texts)
