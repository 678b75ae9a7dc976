"""Continuations are as likely as transformers finds them, and what they share is computed once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.batch import Batch, SampledToken
from engine.core import Engine
from engine.errors import RequestError
from engine.prompt_work import PromptPiece
from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler, SchedulerConfig
from engine.task import Score
from tests.support import prompt_references as reference
from tests.support.cpu_engine import engine_of

TOLERANCE = 1e-4
CONTEXT = tuple(b"The following are questions about libraries. When does the library open? A:")
CHOICES = [tuple(c) for c in (b" at nine", b" at ten o'clock in the morning", b"?", b" never")]


def score(name: object, context: Sequence[int], continuation: Sequence[int]) -> Request:
    return Request(str(name), (*context, *continuation), task=Score(len(context)))


def rows() -> list[Request]:
    """Multiple choice over one context, and contexts and continuations of other lengths."""
    found = [score(f"choice {i}", CONTEXT, choice) for i, choice in enumerate(CHOICES)]
    found += [score(f"long {n}", CONTEXT * 4 + (n,), CONTEXT[n:]) for n in (1, 7, 40)]
    found += [score("short", (65,), (66,)), score("single", CONTEXT[:16], (67,))]
    return [*found, score("edge", CONTEXT[:32], CONTEXT[32:48])]


def answers(engine: Engine, added: Sequence[Request]) -> dict[str, RequestOutput]:
    return {output.request_id: output for output in engine.generate(added)}


def check(model: Any, request: Request, output: RequestOutput) -> None:
    assert isinstance(request.task, Score)
    assert output.error_code is None
    assert output.score is not None
    assert output.finish_reason is FinishReason.STOP
    assert (output.text, output.token_ids, output.completion_tokens) == ("", (), 0)
    assert output.prompt_tokens == len(request.token_ids)
    values, is_greedy = reference.continuation(model, request.token_ids, request.task.context)
    found = torch.tensor(output.score.token_logprobs)
    torch.testing.assert_close(found, values, atol=TOLERANCE, rtol=0)
    assert output.score.logprob == pytest.approx(values.sum().item(), abs=TOLERANCE * len(values))
    assert output.score.is_greedy == is_greedy


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
@pytest.mark.parametrize("budget", [512, 24, 7], ids=["whole", "chunked", "pieces"])
def test_a_tiny_model(folder: Path, tiny: Any, prefix_cache: bool, budget: int) -> None:
    engine = engine_of(folder, enable_prefix_caching=prefix_cache, max_num_batched_tokens=budget)
    for _ in range(2):  # the second time from a warm cache
        found = answers(engine, rows())
        for request in rows():
            check(tiny, request, found[request.request_id])
    assert (engine.stats.cached_tokens > 0) == prefix_cache


def test_among_requests_that_generate(folder: Path, tiny: Any) -> None:
    engine = engine_of(folder, max_num_batched_tokens=32)
    rules = SamplingParams(9, ignore_eos=True, logprobs=2)
    others = [Request(f"text {i}", CONTEXT[i:], rules) for i in range(6)]
    alone = answers(engine_of(folder), others)
    mixed = [r for pair in itertools.zip_longest(rows(), others) for r in pair if r is not None]
    found = answers(engine, mixed)
    for request in rows():
        check(tiny, request, found[request.request_id])
    for other in others:
        assert found[other.request_id].token_ids == alone[other.request_id].token_ids
        assert found[other.request_id].score is None


def test_what_greedy_sampling_gives_is_greedy(folder: Path, tiny: Any) -> None:
    engine = engine_of(folder)
    (text,) = engine.generate([Request("text", CONTEXT, SamplingParams(8, ignore_eos=True))])
    tokens = text.token_ids
    wrong = (*tokens[:-1], (tokens[-1] + 1) % 256)
    found = answers(engine, [score("right", CONTEXT, tokens), score("wrong", CONTEXT, wrong)])
    for name, ids in (("right", tokens), ("wrong", wrong)):
        check(tiny, score(name, CONTEXT, ids), found[name])
    assert [found[n].score.is_greedy for n in ("right", "wrong")] == [True, False]  # type: ignore[union-attr]


def test_sequences_that_are_preempted_keep_their_scores(folder: Path, tiny: Any) -> None:
    engine = engine_of(
        folder, num_blocks=51, block_size=8, max_model_len=400, max_num_batched_tokens=8
    )
    rules = SamplingParams(60, ignore_eos=True, stop_token_ids=(1 << 30,))
    texts = [Request(f"text {i}", CONTEXT[i:], rules, priority=1) for i in range(4)]
    added = [score(i, (i, *CONTEXT * 3), CONTEXT) for i in range(4)]
    for request in added:
        engine.add(request)
    found = engine.step()
    for request in texts:  # they come later, and go first
        engine.add(request)
    while engine.has_unfinished:
        found += engine.step()
    by_name = {output.request_id: output for output in found}
    for request in added:
        check(tiny, request, by_name[request.request_id])
    assert engine.stats.preemptions > 0


def test_smollm2() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.loading import resolve_model

    path = resolve_model("smollm2-135m").path
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    context = tuple(tokenizer("The capital of France is a city. It is called")["input_ids"])
    names = [" Paris", " London", " Rome, the old", " Zürich 🎉"]
    added = [score(n, context, tokenizer(n)["input_ids"]) for n in names]
    found = answers(engine_of("smollm2-135m", block_size=8, max_num_batched_tokens=20), added)
    for request in added:
        check(model, request, found[request.request_id])
    best = max(names, key=lambda n: found[n].score.logprob)  # type: ignore[union-attr]
    assert best == " Paris"


def computed_tokens(added: Sequence[Request], block_size: int, budget: int) -> int:
    """Tokens that all steps together compute when the requests arrive at once."""
    scheduler = Scheduler(
        SchedulerConfig(
            num_blocks=20_000, block_size=block_size, max_num_seqs=256,
            max_num_batched_tokens=budget, max_model_len=8_192, eos_token_ids=frozenset(),
        )
    )  # fmt: skip
    for request in added:
        scheduler.add(request)
    computed = 0
    while scheduler.has_unfinished:
        batch = scheduler.schedule()
        assert not any(s.samples for s in batch.sequences)
        computed += batch.num_tokens
        scheduler.retire(batch, pieces(batch))
        scheduler.check_invariants()
    return computed


def pieces(batch: Batch) -> list[SampledToken]:
    """What a step gives, without a model."""
    from array import array

    found = []
    for sequence in batch.sequences:
        assert sequence.prompt is not None
        positions = sequence.prompt.within(sequence.start, sequence.end)
        if positions:
            piece = PromptPiece(positions.stop, array("f", [0.0] * len(positions)), array("i"))
            found.append(SampledToken(sequence.request_id, -1, prompt=piece))
    return found


@pytest.mark.quick
@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("budget", [96, 8_192])
def test_a_context_is_computed_once_for_all_choices(block_size: int, budget: int) -> None:
    added, fewest = [], 0
    for row in range(12):
        context = tuple(range(row * 1_000, row * 1_000 + 37 * (row + 1)))
        for choice in range(5):
            continuation = tuple(100_000 + row * 100 + choice * 10 + i for i in range(choice + 2))
            added.append(score(f"{row} {choice}", context, continuation))
            fewest += len(continuation)  # its last token is not computed; the context's last is
        fewest += len(context) - 1
    computed = computed_tokens(added, block_size, budget)
    # Every choice after the first may compute what its context has beyond full blocks.
    assert fewest <= computed <= fewest + 12 * 4 * (block_size - 1)
    alone = sum(len(request.token_ids) - 1 for request in added)
    assert computed < alone / 2


def test_the_engine_finds_a_context_in_the_cache(folder: Path) -> None:
    engine = engine_of(folder, block_size=8)
    found = answers(engine, [score(i, CONTEXT, c) for i, c in enumerate(CHOICES)])
    shared = (len(CONTEXT) - 1) // 8 * 8
    cached = sorted(output.cached_tokens for output in found.values())
    assert cached[0] == 0
    assert all(shared <= tokens < len(CONTEXT) for tokens in cached[1:])


@pytest.mark.parametrize(
    ("tokens", "context", "code", "field"),
    [
        ((1, 2), 0, "empty_prompt", "prompt"),
        ((1, 2), 2, "empty_continuation", "choices"),
        ((), 0, "empty_prompt", "prompt"),
        ((1,) * 3000, 5, "prompt_too_long", "prompt"),
        ((1,) * 1026, 5, "kv_cache_too_small", "prompt"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    folder: Path, tokens: tuple[int, ...], context: int, code: str, field: str
) -> None:
    engine = engine_of(folder, num_blocks=64)
    with pytest.raises(RequestError) as caught:
        engine.add(Request("r", tokens, task=Score(context)))
    assert (caught.value.code, caught.value.field) == (code, field)
    engine.add(Request("r", (1,) * 1025, task=Score(5)))  # the last token needs no place
    (output,) = engine.generate([])
    assert output.score is not None


def test_logits_that_are_not_finite_are_that_rows_error(folder: Path) -> None:
    engine = engine_of(folder, max_num_batched_tokens=16)
    engine.loaded.model.embed_tokens[250] = torch.nan
    bad = score("bad", (*CONTEXT[:20], 250, *CONTEXT), CHOICES[0])
    # Its last token is not computed, so whatever is wrong with it stays unread.
    good = [score(i, CONTEXT, c) for i, c in enumerate((*CHOICES, (65, 250)))]
    for _ in range(2):
        found = answers(engine, [bad, *good])
        assert found["bad"].error_code == "nan_logits"
        assert found["bad"].score is None
        assert all(found[g.request_id].score is not None for g in good)
