"""Log probabilities of the engine equal those of transformers, whatever surrounds a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import step_logprobs
from engine.core import Engine
from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams
from tests.support.cpu_engine import engine_of

TOLERANCE = 1e-4
SYSTEM = tuple(b"You answer briefly. You never shout. You know the opening hours of the library.")
PROMPTS = [SYSTEM + tuple(b" Question %d?" % (n * 977)) for n in range(10)]
PROMPTS += [tuple(b"Once"), (65,), SYSTEM * 3]
ASKED = (None, 0, 1, 5, 20, None, 3, 20, 0, None, 2, 20, 7)


def requests(
    prompts: Sequence[tuple[int, ...]], asked: Sequence[int | None], **params: Any
) -> list[Request]:
    """Every second row is sampled, the others are greedy."""
    return [
        Request(
            str(i),
            prompt,
            SamplingParams(
                **{"max_tokens": 14, "temperature": float(i % 2), "top_p": 0.95 if i % 4 else 1.0,
                   "seed": i, "ignore_eos": True, "logprobs": k, **params}
            ),
        )
        for i, (prompt, k) in enumerate(zip(prompts, asked, strict=True))
    ]  # fmt: skip


def answers(engine: Engine, added: list[Request]) -> list[RequestOutput]:
    found = {o.request_id: o for o in engine.generate(added)}
    return [found[r.request_id] for r in added]


def check(model: Any, request: Request, output: RequestOutput) -> None:
    """The output's log probabilities are those that transformers gives the same tokens."""
    if request.params.logprobs is None:
        assert output.logprobs is None
        return
    assert output.logprobs is not None
    assert [t.token_id for t in output.logprobs] == list(output.token_ids)
    assert len(output.logprobs) == output.completion_tokens
    with torch.inference_mode():
        logits = model(torch.tensor([request.token_ids + output.token_ids])).logits[0]
    expected = logits.log_softmax(-1)[len(request.token_ids) - 1 : -1]
    for row, token in zip(expected, output.logprobs, strict=True):
        assert token.logprob == pytest.approx(row[token.token_id].item(), abs=TOLERANCE)
        ids = [t.token_id for t in token.top]
        assert len(set(ids)) == len(ids) == request.params.logprobs
        values = torch.tensor([t.logprob for t in token.top])
        assert values.tolist() == sorted(values.tolist(), reverse=True)
        best = row.topk(len(ids)).values
        torch.testing.assert_close(values, best, atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(values, row[ids], atol=TOLERANCE, rtol=0)
        for top in token.top:
            assert top.token_id != token.token_id or top.logprob == token.logprob
        if ids and request.params.temperature == 0:
            assert token.token_id == ids[0]


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
@pytest.mark.parametrize("budget", [512, 24], ids=["whole", "chunked"])
def test_a_tiny_model(folder: Path, tiny: Any, prefix_cache: bool, budget: int) -> None:
    engine = engine_of(folder, enable_prefix_caching=prefix_cache, max_num_batched_tokens=budget)
    added = requests(PROMPTS, ASKED)
    for _ in range(2):  # the second time from a warm cache
        for request, output in zip(added, answers(engine, added), strict=True):
            check(tiny, request, output)
    assert (engine.stats.cached_tokens > 0) == prefix_cache


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
def test_sequences_that_are_computed_again_keep_theirs(
    folder: Path, tiny: Any, prefix_cache: bool
) -> None:
    engine = engine_of(
        folder, num_blocks=40, block_size=8, max_model_len=320, max_num_batched_tokens=48,
        enable_prefix_caching=prefix_cache, swap_space=0,
    )  # fmt: skip
    added = requests(PROMPTS, ASKED, max_tokens=30, stop_token_ids=(1 << 30,))
    for request, output in zip(added, answers(engine, added), strict=True):
        assert output.completion_tokens == 30
        check(tiny, request, output)
    assert engine.stats.preemptions > 0


def test_smollm2_in_a_mixed_batch() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.loading import resolve_model

    path = resolve_model("smollm2-135m").path
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = ["Le café à Zürich 🎉👩🏽‍🚀 est", "The capital of France is", "def fib(n):", "漢字 is",
             "The library opens at nine. The library", "The library opens at ten."]  # fmt: skip
    prompts = [tuple(tokenizer(t)["input_ids"]) for t in texts]
    engine = engine_of("smollm2-135m", max_num_batched_tokens=20, block_size=8)
    added = requests(prompts, (20, None, 0, 5, None, 1), max_tokens=16, ignore_eos=False)
    for request, output in zip(added, answers(engine, added), strict=True):
        check(model, request, output)
        if output.logprobs is not None:
            pieces = b"".join(t.bytes for t in output.logprobs)
            assert pieces.decode(errors="replace") == output.text


def test_what_a_row_gets_does_not_depend_on_who_asks(folder: Path) -> None:
    def tokens(asked: Sequence[int | None]) -> list[tuple[int, ...]]:
        return [o.token_ids for o in answers(engine_of(folder), requests(PROMPTS, asked))]

    assert tokens(ASKED) == tokens([None] * len(PROMPTS))


def test_rows_that_do_not_ask_cost_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, int]] = []
    compute = step_logprobs.token_logprobs

    def counted(logits: torch.Tensor, tokens: torch.Tensor, k: int) -> Any:
        shapes.append((len(logits), k))
        return compute(logits, tokens, k)

    monkeypatch.setattr(step_logprobs, "token_logprobs", counted)
    engine = engine_of(folder)
    answers(engine, requests(PROMPTS[:4], [None] * 4))
    assert shapes == []
    answers(engine, requests(PROMPTS[:4], [None, 2, None, 7]))
    assert set(shapes) == {(2, 7)}


def test_a_stop_string_cuts_the_text_and_no_log_probabilities(folder: Path) -> None:
    (whole,) = answers(engine_of(folder), requests(PROMPTS[:1], [2]))
    stop = whole.text[4:6]
    (output,) = answers(engine_of(folder), requests(PROMPTS[:1], [2], stop=(stop,)))
    assert output.finish_reason is FinishReason.STOP
    assert output.logprobs is not None
    assert len(output.logprobs) == output.completion_tokens < 14
    text = b"".join(t.bytes for t in output.logprobs).decode(errors="replace")
    assert text.startswith(output.text + stop)


def test_the_token_that_stopped_it_is_there(folder: Path) -> None:
    (free,) = answers(engine_of(folder), requests(PROMPTS[:1], [0]))
    stop = next(t for i, t in enumerate(free.token_ids) if i > 2 and t not in free.token_ids[:i])
    (output,) = answers(engine_of(folder), requests(PROMPTS[:1], [0], stop_token_ids=(stop,)))
    assert output.finish_reason is FinishReason.STOP
    assert output.logprobs is not None
    assert output.logprobs[-1].token_id == stop
    assert free.logprobs is not None
    assert output.logprobs == free.logprobs[: output.completion_tokens]


def test_a_row_that_fails_keeps_those_of_its_tokens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(folder)
    forward = engine.loaded.model.forward
    calls = 0

    def failing(*args: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        logits: torch.Tensor = forward(*args)
        if calls == 4:
            logits[0] = torch.nan
        return logits

    monkeypatch.setattr(engine.loaded.model, "forward", failing)
    bad, good = answers(engine, requests(PROMPTS[:2], [3, 3], temperature=0.0))
    assert (bad.finish_reason, bad.error_code) == (FinishReason.ERROR, "nan_logits")
    assert bad.logprobs is not None
    assert len(bad.logprobs) == bad.completion_tokens == 3
    assert good.logprobs is not None
    assert len(good.logprobs) == good.completion_tokens == 14
