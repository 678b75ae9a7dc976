"""`deterministic`: a row is answered the same whatever is computed with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.admission import Admission
from engine.config import EngineConfig
from engine.core import Engine
from engine.request import Request
from engine.sampling_params import SamplingParams
from kernels.penalties import TokenCounts
from tests.support.reproducible import Answer, answers, sampled_rows
from tests.support.tiny_families import build_family
from tests.support.tiny_model import build_tiny_model

ROWS = sampled_rows(200, most_tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # No power of two, so that rows and heads end within vectors.
    return build_tiny_model(
        tmp_path_factory.mktemp("tiny"), hidden_size=72, intermediate_size=200, head_dim=20
    )


def engine_of(folder: Path | str, **options: Any) -> Engine:
    return Engine(
        EngineConfig(
            str(folder),
            **{"dtype": "float32", "device": "cpu", "num_blocks": 400, "deterministic": True,
               "check_invariants": True, **options},
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Answer]:
    """The answer to each row in an engine that computes nothing else and keeps nothing."""
    return answers(engine_of(folder, enable_prefix_caching=False), ROWS, 1)


@pytest.mark.parametrize(("batch", "prefix_cache"), [(7, True), (64, True), (64, False)])
def test_in_batches(folder: Path, alone: dict[str, Answer], batch: int, prefix_cache: bool) -> None:
    engine = engine_of(folder, enable_prefix_caching=prefix_cache)
    assert answers(engine, ROWS, batch) == alone
    assert (engine.stats.cached_tokens > 0) == prefix_cache


@pytest.mark.parametrize("seed", range(2))
def test_shuffled(folder: Path, alone: dict[str, Answer], seed: int) -> None:
    shuffled = random.Random(seed).sample(ROWS, len(ROWS))
    assert answers(engine_of(folder), shuffled, 64) == alone


def test_what_is_in_the_cache_already(folder: Path, alone: dict[str, Answer]) -> None:
    engine = engine_of(folder, num_blocks=3000)
    answers(engine, ROWS, 64)
    before = engine.stats
    assert answers(engine, ROWS, 64) == alone
    computed = engine.stats.prompt_tokens - before.prompt_tokens
    assert engine.stats.cached_tokens - before.cached_tokens > 0.6 * computed


@pytest.mark.parametrize("budget", [5, 50])
def test_in_chunks_of_prompts(folder: Path, alone: dict[str, Answer], budget: int) -> None:
    engine = engine_of(folder, max_num_batched_tokens=budget, max_num_seqs=budget)
    assert answers(engine, ROWS, 64) == alone


@pytest.mark.parametrize("swap_space", [0.0, 0.1])
def test_preempted(
    folder: Path, alone: dict[str, Answer], monkeypatch: pytest.MonkeyPatch, swap_space: float
) -> None:
    monkeypatch.setattr(Admission, "_reserve", lambda *_: 0)  # nothing is kept free for growth
    engine = engine_of(
        folder,
        block_size=8,
        num_blocks=24,
        max_model_len=160,
        max_num_batched_tokens=40,
        swap_space=swap_space,
    )
    assert answers(engine, ROWS, 64) == alone
    assert engine.stats.preemptions > 20


def test_with_other_threads(folder: Path, alone: dict[str, Answer]) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        assert answers(engine_of(folder, threads=3), ROWS, 64) == alone
    finally:
        torch.set_num_threads(before)


def test_the_real_model() -> None:
    rows = sampled_rows(12, most_tokens=8, vocabulary=40_000)
    first = engine_of("smollm2-135m", enable_prefix_caching=False)
    expected = answers(first, rows, 1)
    assert answers(engine_of("smollm2-135m", max_num_batched_tokens=48), rows, 12) == expected
    assert len({answer[0] for answer in expected.values()}) > 6


@pytest.mark.parametrize("family", ["llama gelu", "qwen2 gelu", "mistral mixed"])
def test_prompts_longer_than_a_step(family: str, tmp_path: Path) -> None:
    """A step of a chunk that is not the last one has no row to go on with after its attention."""
    build_family(family, tmp_path)
    rows = sampled_rows(6, most_tokens=4)
    whole = answers(engine_of(tmp_path, enable_prefix_caching=False), rows, 1)
    assert answers(engine_of(tmp_path, max_num_batched_tokens=7), rows, 3) == whole


def test_many_rows_with_penalties_are_each_counted_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are sampled one by one: none is to take the place in the table that another has."""
    begun: list[int] = []
    begin = TokenCounts.begin

    def noted(counts: TokenCounts, slots: torch.Tensor, prompt: torch.Tensor) -> None:
        begun.extend(slots.tolist())
        begin(counts, slots, prompt)

    monkeypatch.setattr(TokenCounts, "begin", noted)
    rules = SamplingParams(max_tokens=6, ignore_eos=True, repetition_penalty=1.2)
    list(engine_of(folder).generate(Request(str(i), (i, 7, 7), rules) for i in range(20)))
    assert sorted(begun) == list(range(20))
