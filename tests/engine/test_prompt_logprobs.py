"""Log probabilities of prompts equal those of transformers, cost a bounded memory, and only those
who ask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import step_prompts
from engine.core import Engine
from engine.request import Request, RequestOutput
from engine.sampling_params import SamplingParams
from tests.support import prompt_references as reference
from tests.support.cpu_engine import engine_of

TOLERANCE = 1e-4
SYSTEM = tuple(b"You answer briefly. You never shout. You know the opening hours of the library.")
PROMPTS = [SYSTEM + tuple(b" Question %d?" % (n * 977)) for n in range(8)]
PROMPTS += [tuple(b"Once"), (65,), SYSTEM * 3]
ASKED = (None, 0, 1, 5, 20, None, 3, 20, 2, 4, 20)


def requests(asked: Sequence[int | None] = ASKED, **params: Any) -> list[Request]:
    return [
        Request(
            str(i),
            prompt,
            SamplingParams(
                **{"max_tokens": 6, "ignore_eos": True, "logprobs": 1 if i % 3 else None,
                   "prompt_logprobs": k, **params}
            ),
        )
        for i, (prompt, k) in enumerate(zip(PROMPTS, asked, strict=True))
    ]  # fmt: skip


def answers(engine: Engine, added: Sequence[Request]) -> dict[str, RequestOutput]:
    return {output.request_id: output for output in engine.generate(added)}


def check(model: Any, request: Request, output: RequestOutput) -> None:
    k = request.params.prompt_logprobs
    if k is None:
        assert output.prompt_logprobs is None
        return
    assert output.prompt_logprobs is not None
    tokens = output.prompt_logprobs
    assert tuple(t.token_id for t in tokens) == request.token_ids[1:]
    expected = reference.logprobs(model, request.token_ids)
    for row, token in zip(expected, tokens, strict=True):
        assert token.logprob == pytest.approx(row[token.token_id].item(), abs=TOLERANCE)
        assert len(token.top) == k
        values = torch.tensor([t.logprob for t in token.top])
        torch.testing.assert_close(values, row.topk(k).values, atol=TOLERANCE, rtol=0)
        ids = [t.token_id for t in token.top]
        torch.testing.assert_close(values, row[ids], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
@pytest.mark.parametrize("budget", [512, 24, 7], ids=["whole", "chunked", "pieces"])
def test_a_tiny_model(folder: Path, tiny: Any, prefix_cache: bool, budget: int) -> None:
    engine = engine_of(folder, enable_prefix_caching=prefix_cache, max_num_batched_tokens=budget)
    for _ in range(2):  # the second time from a warm cache
        found = answers(engine, requests())
        for request in requests():
            check(tiny, request, found[request.request_id])
            if request.params.prompt_logprobs is not None and len(request.token_ids) > 1:
                assert found[request.request_id].cached_tokens == 0
    assert (engine.stats.cached_tokens > 0) == prefix_cache


def test_smollm2() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.loading import resolve_model

    path = resolve_model("smollm2-135m").path
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = ["Le café à Zürich 🎉👩🏽‍🚀 est", "def fib(n):", "漢字 is"]
    tokens = [tuple(tokenizer(text)["input_ids"]) for text in texts]
    added = [
        Request(t, ids, SamplingParams(4, prompt_logprobs=3))
        for t, ids in zip(texts, tokens, strict=True)
    ]
    found = answers(engine_of("smollm2-135m", max_num_batched_tokens=5), added)
    for request in added:
        output = found[request.request_id]
        check(model, request, output)
        assert output.prompt_logprobs is not None
        pieces = b"".join(t.bytes for t in output.prompt_logprobs)
        assert request.request_id.encode().endswith(pieces)
        assert len(pieces) > len(request.request_id.encode()) // 2


def test_the_answer_is_the_same(folder: Path) -> None:
    silent = answers(engine_of(folder), requests([None] * len(ASKED)))
    asking = answers(engine_of(folder, max_num_batched_tokens=24), requests())
    for name, output in silent.items():
        assert asking[name].token_ids == output.token_ids
        assert asking[name].text == output.text


def test_a_sequence_that_is_preempted_keeps_them(folder: Path, tiny: Any) -> None:
    engine = engine_of(
        folder, num_blocks=40, block_size=8, max_model_len=320, max_num_batched_tokens=48
    )
    added = requests(max_tokens=30, stop_token_ids=(1 << 30,))
    found = answers(engine, added)
    for request in added:
        check(tiny, request, found[request.request_id])
        assert found[request.request_id].completion_tokens == 30
    assert engine.stats.preemptions > 0


def test_logits_are_computed_in_slices(
    folder: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> tuple[dict[str, RequestOutput], int]:
        """The answers, and the most rows whose logits there were at once."""
        engine, sizes = engine_of(folder), []
        to_logits = engine.loaded.model.logits

        def counted(hidden: torch.Tensor) -> torch.Tensor:
            sizes.append(len(hidden))
            return to_logits(hidden)

        monkeypatch.setattr(engine.loaded.model, "logits", counted)
        return answers(engine, requests([20] * len(ASKED))), max(sizes)

    whole, together = run()
    monkeypatch.setattr(step_prompts, "MAX_LOGITS", 13 * tiny.config.vocab_size + 1)
    sliced, most = run()
    assert together > 400
    assert most == 13
    for request in requests([20] * len(ASKED)):
        name = request.request_id
        check(tiny, request, sliced[name])
        assert sliced[name].token_ids == whole[name].token_ids


def test_rows_that_do_not_ask_cost_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []
    kept: list[int] = []
    compute = step_prompts.token_logprobs

    def counted(logits: torch.Tensor, tokens: torch.Tensor, k: int) -> Any:
        scored.append(len(logits))
        return compute(logits, tokens, k)

    monkeypatch.setattr(step_prompts, "token_logprobs", counted)

    def run(asked: Sequence[int | None]) -> None:
        engine = engine_of(folder)
        model = engine.loaded.model
        states = model.hidden_states

        def kept_rows(*args: torch.Tensor) -> torch.Tensor:
            kept.append(len(args[-1]))
            return states(*args)

        monkeypatch.setattr(model, "hidden_states", kept_rows)
        answers(engine, requests(asked))

    run([None] * len(ASKED))
    assert scored == []
    assert sum(kept) == 6 * len(PROMPTS)  # a row for each sampled token
    kept.clear()
    run(ASKED)
    wanted = sum(len(p) - 1 for p, k in zip(PROMPTS, ASKED, strict=True) if k is not None)
    assert sum(scored) == wanted
    assert sum(kept) == 6 * len(PROMPTS) + wanted
