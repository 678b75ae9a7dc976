"""Samples that fork, in a real engine: the same answers, for one prompt's work and memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.batch import Batch, SampledToken
from engine.config import EngineConfig
from engine.core import Engine
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams

PROMPT = tuple(b"The first lines of a story, at least two blocks of sixteen tokens long")
RULES = SamplingParams(12, temperature=1.0, seed=5, ignore_eos=True, logprobs=1)
CACHING = pytest.mark.parametrize("caching", [False, True], ids=["no-cache", "cache"])


def engine_of(folder: Path, caching: bool, **settings: Any) -> Engine:
    defaults = {"num_blocks": 128, "max_num_seqs": 32, "dtype": "float32"}
    return Engine(
        EngineConfig(
            str(folder), enable_prefix_caching=caching, check_invariants=True,
            **{**defaults, **settings},
        )
    )  # fmt: skip


def samples(
    count: int, prompt: tuple[int, ...] = PROMPT, rules: SamplingParams = RULES
) -> list[Request]:
    return [Request(f"s{i}", prompt, rules, sample_index=i, sample_of="s") for i in range(count)]


def answers(engine: Engine, requests: list[Request]) -> dict[str, tuple[int, ...]]:
    found = {output.request_id: output for output in engine.generate(requests)}
    assert engine.stats.blocks_used == 0
    assert all(o.error_code is None and o.logprobs is not None for o in found.values())
    return {name: output.token_ids for name, output in found.items()}


def watched(engine: Engine) -> list[Batch]:
    """The batches that the engine computes from now on."""
    batches, execute = [], engine.runner.execute

    def noted(batch: Batch) -> list[SampledToken]:
        batches.append(batch)
        return execute(batch)

    engine.runner.execute = noted  # type: ignore[method-assign]
    return batches


@CACHING
@pytest.mark.parametrize("length", [1, 2, 5, 16, 33, len(PROMPT)])
def test_forks_answer_as_requests_of_their_own(folder: Path, caching: bool, length: int) -> None:
    """Also where more samples than the step has tokens are drawn from one row of logits."""
    prompt = PROMPT[:length]
    alone = [Request(f"s{i}", prompt, RULES, sample_index=i) for i in range(8)]
    plain = engine_of(folder, False)
    expected = {k: v for request in alone for k, v in answers(plain, [request]).items()}
    assert len(set(expected.values())) == 8
    engine = engine_of(folder, caching)
    others = [Request("o", PROMPT[3:], RULES), Request("p", PROMPT[:9], RULES)]
    found = answers(engine, [others[0], *samples(8, prompt), others[1]])
    assert {name: found[name] for name in expected} == expected
    again = answers(engine, samples(8, prompt))  # from a warm cache, if there is one
    assert again == expected


def test_without_a_cache_the_prompt_is_computed_once(folder: Path) -> None:
    engine = engine_of(folder, False)
    batches = watched(engine)
    answers(engine, samples(8))
    # The last token of an answer is not computed.
    assert sum(batch.num_tokens for batch in batches) == len(PROMPT) + 8 * 11
    assert engine.stats.prompt_tokens == 8 * len(PROMPT)
    assert engine.stats.cached_tokens == 7 * len(PROMPT)


@CACHING
def test_eight_samples_hold_their_prompt_once(folder: Path, caching: bool) -> None:
    used = {}
    for count in (1, 8):
        engine = engine_of(folder, caching)
        for request in samples(count, rules=replace(RULES, max_tokens=20)):
            engine.add(request)
        most = []
        while engine.has_unfinished:
            engine.step()
            most.append(engine.stats.blocks_used)
        used[count] = most
    full = len(PROMPT) // 16
    assert used[1][0] == used[8][0] == full + 1  # before they diverge
    assert max(used[1]) == full + 2
    assert max(used[8]) == full + 8 * 2


@CACHING
def test_forks_are_computed_where_memory_is_short(
    folder: Path, caching: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(engine_of(folder, False), samples(6))
    engine = engine_of(folder, caching)
    execute = engine.runner.execute

    def short(batch: Batch) -> list[SampledToken]:
        if batch.num_tokens > 3:
            raise MemoryError
        return execute(batch)

    monkeypatch.setattr(engine.runner, "execute", short)
    assert answers(engine, samples(6)) == expected
    assert engine.stats.out_of_memory > 0


def test_a_prompt_that_cannot_be_computed_is_the_error_of_all_its_samples(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.micro_batches.WAIT_SECONDS", (0.0,))
    engine = engine_of(folder, True)
    execute = engine.runner.execute

    def short(batch: Batch) -> list[SampledToken]:
        if any(s.request_id == "s0" for s in batch.sequences):
            raise MemoryError
        return execute(batch)

    monkeypatch.setattr(engine.runner, "execute", short)
    other = Request("other", PROMPT[1:], RULES)
    found = {o.request_id: o for o in engine.generate([*samples(3), other])}
    assert {found[f"s{i}"].error_code for i in range(3)} == {"out_of_memory"}
    assert found["other"].finish_reason is FinishReason.LENGTH
    assert engine.stats.blocks_used == 0


@CACHING
def test_forks_that_are_preempted_answer_the_same(folder: Path, caching: bool) -> None:
    rules = SamplingParams(60, temperature=1.0, seed=5, logprobs=0, ignore_eos=True,
                           stop_token_ids=(1 << 30,))  # fmt: skip
    expected = answers(engine_of(folder, False, num_blocks=256), samples(8, rules=rules))
    small = engine_of(folder, caching, num_blocks=20, max_model_len=200)
    assert answers(small, samples(8, rules=rules)) == expected
    assert small.stats.preemptions > 0
