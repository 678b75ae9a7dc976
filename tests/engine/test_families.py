"""The engine's greedy answers equal those of transformers for every family.

Tiny random models, prompts several times longer than the sliding windows, in mixed batches of
chunks and decodes, with the prefix cache and without it, and with a pool so small that
sequences are preempted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.core import Engine
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.support.golden import near_ties, references
from tests.support.tiny_families import FAMILIES, build_family

MAX_TOKENS = 20
# A stop id that is never sampled: no length is known, so growth is not reserved.
RULES = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, stop_token_ids=(1 << 30,))
SETTINGS: list[dict[str, Any]] = [
    {"block_size": 8, "num_blocks": 20, "max_model_len": 160},
    {"block_size": 16},
    {"block_size": 32, "enable_prefix_caching": False},
]


def prompts() -> list[tuple[int, ...]]:
    """Three of them begin with the same 70 tokens, more than any window."""
    generator = torch.Generator().manual_seed(1)

    def prompt(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 256, (length,), generator=generator).tolist())

    system = prompt(70)
    return [
        *(system + prompt(n) for n in (1, 5, 50)),
        *(prompt(n) for n in (1, 7, 15, 20, 22, 29, 31, 100)),
    ]


def answers(engine: Engine, asked: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    outputs = engine.generate(Request(str(i), tokens, RULES) for i, tokens in enumerate(asked))
    found = {output.request_id: tuple(output.token_ids) for output in outputs}
    assert engine.stats.blocks_used == 0
    return [found[str(i)] for i in range(len(asked))]


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_equal_those_of_transformers(family: str, tmp_path: Path) -> None:
    model = build_family(family, tmp_path)
    asked = prompts()
    expected = references(model, asked, MAX_TOKENS, eos=None)
    assert len({reference.token_ids for reference in expected}) == len(asked)
    for settings in SETTINGS:
        engine = Engine(
            EngineConfig(
                **{
                    "model": str(tmp_path), "device": "cpu", "dtype": "float32",
                    "num_blocks": 256, "max_num_batched_tokens": 48, "check_invariants": True,
                    **settings,
                }
            )
        )  # fmt: skip
        near_ties(expected, answers(engine, asked))
        assert (engine.stats.preemptions > 0) == ("max_model_len" in settings)
        if settings.get("enable_prefix_caching", True):
            before = engine.stats.cached_tokens
            near_ties(expected[:3], answers(engine, asked[:3]))  # now from a warm cache
            assert engine.stats.cached_tokens > before
        else:
            assert engine.stats.cached_tokens == 0
