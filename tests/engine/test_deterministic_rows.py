"""`deterministic`, of rows that ask for more than a plain answer.

Samples that fork from one prompt, rows with rules of every kind for their logits, grammars and
beams, log probabilities of prompts, scores and embeddings: alone, in any batch, in chunks and
preempted they give the same bits.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.admission import Admission
from engine.config import EngineConfig
from engine.core import Engine
from engine.grammar.spec import GrammarKind, GrammarSpec
from engine.request import Request, RequestOutput
from engine.sampling_params import SamplingParams
from engine.task import Embed, Pooling, Score
from tests.support.tiny_model import build_tiny_model

SYSTEM = tuple(b"You are a helpful assistant who answers in few words. ")
KINDS: list[SamplingParams] = [
    SamplingParams(repetition_penalty=1.3, temperature=0.8),
    SamplingParams(presence_penalty=0.7, frequency_penalty=0.3, temperature=1.1, logprobs=4),
    SamplingParams(logit_bias=((65, 2.5), (101, -3.0)), temperature=0.9, top_p=0.8),
    SamplingParams(allowed_token_ids=tuple(range(40, 200)), temperature=1.0, min_p=0.05),
    SamplingParams(bad_words_ids=((101,), (32, 97)), min_tokens=4, temperature=0.7, top_k=9),
    SamplingParams(grammar=GrammarSpec(GrammarKind.REGEX, "[a-f]{8,30}"), temperature=1.0),
    SamplingParams(prompt_logprobs=3, temperature=1.0),
    SamplingParams(prompt_logprobs=0, repetition_penalty=1.1),
    SamplingParams(num_beams=3, num_return_sequences=3),
]


def families() -> list[tuple[Request, ...]]:
    """Requests; those that are samples of one prompt stand together, and are never parted."""
    draw = random.Random(11)
    found: list[tuple[Request, ...]] = []
    for i in range(54):
        prompt = SYSTEM * (i % 3) + tuple(draw.randrange(256) for _ in range(draw.randint(2, 50)))
        params = replace(
            KINDS[i % len(KINDS)], max_tokens=10, ignore_eos=i % 2 == 0, seed=draw.randrange(2**63)
        )
        n = 1 if i % 4 or params.num_beams > 1 or params.prompt_logprobs is not None else 3
        found.append(
            tuple(
                Request(f"{i} {s}", prompt, params, 0, s, sample_of=str(i) if n > 1 else None)
                for s in range(n)
            )
        )
    for i in range(18):
        text = SYSTEM * (i % 3) + tuple(draw.randrange(256) for _ in range(draw.randint(2, 50)))
        for name, task in {
            "score": Score(1 + i % (len(text) - 1)),
            "last": Embed(Pooling.LAST),
            "mean": Embed(Pooling.MEAN),
            "raw": Embed(Pooling.MEAN, normalize=False),
        }.items():
            found.append((Request(f"{name} {i}", text, task=task),))
    return found


FAMILIES = families()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # No power of two, so that rows and heads end within vectors.
    return build_tiny_model(
        tmp_path_factory.mktemp("tiny"), hidden_size=72, intermediate_size=200, head_dim=20
    )


def engine_of(folder: Path, **options: Any) -> Engine:
    return Engine(
        EngineConfig(
            str(folder),
            **{"dtype": "float32", "device": "cpu", "num_blocks": 400, "deterministic": True,
               "check_invariants": True, **options},
        )
    )  # fmt: skip


def answers(
    engine: Engine, asked: Sequence[tuple[Request, ...]], together: int
) -> dict[str, RequestOutput]:
    """So many families at a time; what was cached and counted does not count."""
    return {
        output.request_id: replace(output, cached_tokens=0)
        for batch in (asked[i : i + together] for i in range(0, len(asked), together))
        for output in checked(engine.generate(itertools.chain(*batch)))
    }


def checked(outputs: Iterator[RequestOutput]) -> Iterator[RequestOutput]:
    for output in outputs:
        assert output.error_code is None
        yield output


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, RequestOutput]:
    """Each request by itself, without the others of its family."""
    engine = engine_of(folder, enable_prefix_caching=False)
    single = [(replace(request, sample_of=None),) for family in FAMILIES for request in family]
    return answers(engine, single, 1)


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
@pytest.mark.parametrize("together", [5, 40])
def test_in_batches(
    folder: Path, alone: dict[str, RequestOutput], together: int, prefix_cache: bool
) -> None:
    engine = engine_of(folder, enable_prefix_caching=prefix_cache)
    assert answers(engine, FAMILIES, together) == alone


@pytest.mark.parametrize("budget", [13, 64])
def test_shuffled_and_in_chunks(folder: Path, alone: dict[str, RequestOutput], budget: int) -> None:
    shuffled = random.Random(budget).sample(FAMILIES, len(FAMILIES))
    engine = engine_of(folder, max_num_batched_tokens=budget, max_num_seqs=budget)
    assert answers(engine, shuffled, 30) == alone


@pytest.mark.parametrize("swap_space", [0.0, 0.1])
def test_preempted(
    folder: Path,
    alone: dict[str, RequestOutput],
    monkeypatch: pytest.MonkeyPatch,
    swap_space: float,
) -> None:
    monkeypatch.setattr(Admission, "_reserve", lambda *_: 0)  # nothing is kept free for growth
    engine = engine_of(
        folder, block_size=8, num_blocks=28, max_model_len=200, max_num_batched_tokens=40,
        swap_space=swap_space,
    )  # fmt: skip
    assert answers(engine, FAMILIES, 40) == alone
    assert engine.stats.preemptions > 10


def test_with_other_threads_and_a_large_vocabulary(tmp_path: Path) -> None:
    """Torch's threads share one row of logits only where it is long."""
    build_tiny_model(tmp_path, vocab_size=49_152, num_hidden_layers=1)
    plain = SamplingParams(max_tokens=40, temperature=1.0, ignore_eos=True, logprobs=2)
    asked = [(Request(f"plain {i}", (i, *SYSTEM), replace(plain, seed=i)),) for i in range(8)]
    asked += [
        family for family in FAMILIES
        if family[0].task is not None or family[0].params.prompt_logprobs is not None
    ]  # fmt: skip
    before = torch.get_num_threads()
    try:
        one = answers(engine_of(tmp_path, threads=1), asked, 20)
        three = answers(engine_of(tmp_path, threads=3), asked, 20)
    finally:
        torch.set_num_threads(before)
    assert three == one
