"""Contexts and continuations become tokens as in EleutherAI's lm-evaluation-harness."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from engine.request import FinishReason, RequestOutput, ScoreOutput
from engine.task import Embed, Pooling, Score
from jobs.records import ChunkLease
from tests.support.tiny_model import byte_tokenizer
from worker.prompts import PromptEncoder
from worker.requests import COLUMNS
from worker.row_samples import RowSamples
from worker.task_requests import prepare

PAIRS = [
    ("The capital of France is", (" Paris", " London", "burg")),
    ("The capital of France is ", ("Paris", "London")),
    ("Question: 2 + 2?\nAnswer:\n", ("4", " four", "\n5")),
    ("  ", ("indented",)),
    ("un", ("believable", " fold")),
    ("naïve café 漢", ("字", " 🎉")),
]


def row(index: int, *, prompt: str | None = None, **more: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {"row_index": index, "line": index + 1, "prompt": prompt}
    columns |= {name: None for name in COLUMNS if name not in columns}
    return columns | {name: json.dumps(value) for name, value in more.items()}


def harness_pair(
    encode: Any, prefix: int, context: str, continuation: str
) -> tuple[list[int], list[int]]:
    """The rule of the harness: `_encode_pair`, and `loglikelihood` of an empty context."""
    if context == "":
        return [prefix], encode(continuation)
    spaces = len(context) - len(context.rstrip())
    if spaces > 0:
        continuation = context[-spaces:] + continuation
        context = context[:-spaces]
    whole, alone = encode(context + continuation), encode(context)
    return alone, whole[len(alone) :]


@pytest.fixture(scope="module")
def smollm() -> PromptEncoder:
    from engine.loading import resolve_model

    return PromptEncoder(str(resolve_model("smollm2-135m").path))


@pytest.fixture
def scoring(lease: ChunkLease) -> ChunkLease:
    return dataclasses.replace(lease, options={"kind": "score", "row_timeout": 3.0})


def test_tokens_are_those_of_the_harness(scoring: ChunkLease, smollm: PromptEncoder) -> None:
    tokenizer = smollm._tokenizer
    rows = [row(i, prompt=c, continuations=list(some)) for i, (c, some) in enumerate(PAIRS)]
    rows.append(row(len(PAIRS), prompt="", continuations=["Once upon a time"]))
    (batch,) = prepare(scoring, rows, smollm, 2048)
    assert batch.refused == ()

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    for found, given in zip(batch.rows, rows, strict=True):
        continuations = json.loads(given["continuations"])
        assert found.continuations == tuple(continuations)
        assert found.seed is None
        for i, (request, text) in enumerate(zip(found.requests, continuations, strict=True)):
            context = given["prompt"]
            # White space alone is an empty context, too: nothing of it would be left.
            if not context.strip():
                context, text = "", context + text
            before, after = harness_pair(encode, tokenizer.bos_token_id, context, text)
            assert request.token_ids == tuple(before + after)
            assert request.task == Score(len(before))
            assert (request.sample_index, request.timeout) == (i, 3.0)


def test_a_tokenizer_that_begins_texts_does_so_once(tmp_path: Path, scoring: ChunkLease) -> None:
    from tokenizers import processors

    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A <|eos|>", special_tokens=[("<|bos|>", 256), ("<|eos|>", 257)]
    )
    tokenizer.save_pretrained(tmp_path)
    rows = [
        row(0, prompt="ab", continuations=["c"]),
        row(1, prompt="", continuations=["c"]),
        row(2, prompt="<|bos|>ab", continuations=["c"]),
        row(3, messages=[{"role": "user", "content": "hi"}], continuations=["c"]),
    ]
    (batch,) = prepare(scoring, rows, PromptEncoder(str(tmp_path)), 100)
    a, b, c = (tokenizer.convert_tokens_to_ids(x) for x in "abc")
    tokens = [r.requests[0].token_ids for r in batch.rows]
    assert tokens[:3] == [(256, a, b, c), (256, c), (256, a, b, c)]
    assert [r.requests[0].task for r in batch.rows[:3]] == [Score(3), Score(1), Score(3)]
    assert tokens[3].count(256) == 1
    assert 257 not in {t for some in tokens for t in some}


class Encoder:
    """A token a character; `!` is none."""

    longest_token = 1
    opening_token: int | None = None

    def render(self, messages: list[dict[str, str]], *_: Any) -> str:
        return "".join(m["content"] for m in messages)

    def encode_openings(self, texts: list[str]) -> list[list[int]]:
        return [[ord(c) for c in text if c != "!"] for text in texts]

    encode_chats = encode_prompts = encode_openings


def test_one_bad_row_is_one_error_row(scoring: ChunkLease) -> None:
    rows = [
        row(0, prompt="ab", continuations=["c"]),
        row(1, prompt="ab", continuations=["c", "!"]),
        row(2, prompt="", continuations=["c"]),
        row(3, prompt="ab", continuations=["c", "x" * 99]),
        row(4, messages=[{"role": "user", "content": "ab "}], continuations=["c"]),
    ]
    (batch,) = prepare(scoring, rows, Encoder(), 100)  # type: ignore[arg-type]
    assert [r.row_index for r in batch.rows] == [0, 4]
    assert batch.rows[1].requests[0].token_ids == (97, 98, 32, 99)
    assert batch.rows[1].requests[0].task == Score(2)
    errors = {r.row_index: r.error for r in batch.refused}
    assert {i: (e.code, e.field, e.line) for i, e in errors.items() if e is not None} == {
        1: ("empty_continuation", "choices[1]", 2),
        2: ("empty_prompt", "prompt", 3),
        3: ("prompt_too_long", "prompt", 4),
    }


@pytest.mark.parametrize(("pooling", "normalize"), [("last", True), ("mean", False)])
def test_rows_to_embed(lease: ChunkLease, pooling: str, normalize: bool) -> None:
    options = {"kind": "embed", "pooling": pooling, "normalize": normalize}
    embedding = dataclasses.replace(lease, options=options)
    rows = [row(0, prompt="ab"), row(1, prompt="x" * 101), row(2, prompt="c")]
    (batch,) = prepare(embedding, rows, Encoder(), 100)  # type: ignore[arg-type]
    assert [r.requests[0].token_ids for r in batch.rows] == [(97, 98), (99,)]
    assert {r.task for r in batch.requests} == {Embed(Pooling(pooling), normalize)}
    (refused,) = batch.refused
    assert refused.error is not None
    assert (refused.row_index, refused.error.code) == (1, "prompt_too_long")


def test_rows_of_other_jobs_are_prepared_as_ever(lease: ChunkLease) -> None:
    (batch,) = prepare(lease, [row(0, prompt="ab")], Encoder(), 100)  # type: ignore[arg-type]
    assert [r.task for r in batch.requests] == [None]


def output(request_id: str, logprob: float, prompt: int, cached: int, **more: Any) -> RequestOutput:
    from array import array

    score = ScoreOutput(logprob, array("f", [logprob]), is_greedy=False)
    return RequestOutput(
        request_id, (), "", FinishReason.STOP, prompt, cached, 0, **{"score": score, **more}
    )


def test_the_best_continuation_by_sum_and_by_byte(scoring: ChunkLease) -> None:
    texts = ["cc", "dddddddd", "é", "cc"]
    (batch,) = prepare(scoring, [row(0, prompt="ab", continuations=texts)], Encoder(), 100)  # type: ignore[arg-type]
    (prepared,) = batch.rows
    samples = RowSamples(prepared)
    values = [-3.0, -4.0, -2.5, -3.0]
    for i, (request, value) in enumerate(zip(prepared.requests, values, strict=True)):
        assert not samples.complete
        samples.add(
            i, output(request.request_id, value, len(request.token_ids), 0 if i == 0 else 2)
        )
    result = samples.result(1)
    assert result.error is None
    assert result.scores is not None
    assert [s.logprob for s in result.scores] == values
    assert (result.best, result.best_normalized) == (2, 1)  # -2.5; -0.5 a byte
    assert (result.prompt_tokens, result.cached_tokens) == (2 + 2 + 8 + 1 + 2, 0)
    assert (result.text, result.choices, result.seed, result.finish_reason) == (
        None, None, None, "stop",
    )  # fmt: skip


def test_a_continuation_that_fails_fails_its_row(scoring: ChunkLease) -> None:
    (batch,) = prepare(scoring, [row(0, prompt="ab", continuations=["c", "d"])], Encoder(), 100)  # type: ignore[arg-type]
    (prepared,) = batch.rows
    samples = RowSamples(prepared)
    first, second = prepared.requests
    samples.add(0, output(first.request_id, -1.0, 3, 0))
    samples.add(1, RequestOutput.without_answer(second.request_id, "nan_logits", "not finite"))
    result = samples.result(9)
    assert result.error is not None
    assert (result.error.code, result.error.line) == ("nan_logits", 9)
    assert result.error.message.startswith("continuation 1 of 2")
    assert result.scores is result.best is None
