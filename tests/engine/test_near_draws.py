"""Without `deterministic`, an answer changes with its batch only where a hair decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.core import Engine
from engine.request import Request
from kernels.sampling import RowSampling, SamplingMetadata, sample
from tests.support.by_hand import load_runner
from tests.support.near_draws import distance_to_another, distances_where_they_part
from tests.support.reproducible import sampled_rows

ROWS = sampled_rows(200, most_tokens=12)
# What float32 moves; and what the rounding of keys and values to float16 does.
NEAR, NEAR_IN_FLOAT16 = 1e-4, 0.03


def tokens_of(
    folder: Path, rows: Sequence[Request], batch: int, **options: Any
) -> dict[str, tuple[int, ...]]:
    engine = Engine(
        EngineConfig(str(folder), dtype="float32", device="cpu", **{"num_blocks": 400, **options})
    )
    groups = [rows[at : at + batch] for at in range(0, len(rows), batch)]
    return {o.request_id: o.token_ids for group in groups for o in engine.generate(group)}


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, tuple[int, ...]]:
    return tokens_of(folder, ROWS, 1, enable_prefix_caching=False)


@pytest.mark.parametrize(
    "options",
    [{"batch": 7}, {"batch": 64, "num_blocks": 20, "max_model_len": 160},
     {"batch": 200, "max_num_batched_tokens": 40}],
)  # fmt: skip
def test_answers_part_at_near_ties_alone(
    folder: Path, alone: dict[str, tuple[int, ...]], options: dict[str, Any]
) -> None:
    others = tokens_of(folder, ROWS, **options)
    parted = distances_where_they_part(load_runner(folder), ROWS, alone, others)
    print(f"{len(parted)} of {len(ROWS)} rows part, at distances of {sorted(parted.values())}")
    assert all(distance < NEAR for distance in parted.values())


def test_the_rule_accepts_what_rounding_does_and_nothing_else(
    folder: Path, alone: dict[str, tuple[int, ...]]
) -> None:
    """Else the test above could say nothing, for rows part seldom."""
    runner = load_runner(folder)
    rounded = tokens_of(folder, ROWS, 64, kv_cache_dtype="float16")
    near = distances_where_they_part(runner, ROWS, alone, rounded)
    assert near
    assert max(near.values()) < NEAR_IN_FLOAT16
    reseeded = [
        dataclasses.replace(row, params=dataclasses.replace(row.params, seed=3)) for row in ROWS
    ]
    far = distances_where_they_part(runner, ROWS, alone, tokens_of(folder, reseeded, 64))
    assert max(far.values()) > NEAR_IN_FLOAT16


@pytest.mark.quick
@pytest.mark.parametrize(
    ("rule", "distance"),
    [
        (RowSampling(0.0, 0, 1.0, 0, 0, 0), 0.5),
        (RowSampling(2.0, 1, 1.0, 0, 0, 0), 0.25),
        (RowSampling(2.0, 2, 1.0, 0, 0, 0), 0.125),
    ],
)
def test_the_nearest_bound_counts(rule: RowSampling, distance: float) -> None:
    logits = torch.tensor([1.0, 0.5, 0.25, -30.0])
    assert distance_to_another(logits, rule) <= distance


@pytest.mark.quick
def test_moving_less_than_the_distance_changes_no_draw() -> None:
    generator = torch.Generator().manual_seed(0)
    for seed in range(200):
        logits = torch.randn(30, generator=generator) * 3
        rule = RowSampling(1.0, 0, 0.9 if seed % 2 else 1.0, seed, 4, 0)
        # Probabilities move by at most half of what logits do.
        step = torch.randn(30, generator=generator).sign() * distance_to_another(logits, rule) * 0.9
        metadata = SamplingMetadata.build([rule], 30, torch.device("cpu"))
        both = [sample(x[None], metadata).item() for x in (logits, logits + step)]
        assert both[0] == both[1]
