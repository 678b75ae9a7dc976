"""One engine through thousands of requests of all kinds: nothing is lost, and nothing piles up."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core import Engine
from tests.support.long_life import NUM_BLOCKS, Life, engine_of, growth, live
from tests.support.tiny_model import build_tiny_model


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return engine_of(build_tiny_model(tmp_path))


def check(engine: Engine, life: Life, count: int) -> None:
    """Every request has ended, each kind has come, and the engine is as empty as at its start."""
    assert life.requests == count
    assert life.ended.keys() == {"stop", "length", "nan_logits", "row_timeout"}
    assert life.refused.keys() == {"empty_prompt", "prompt_too_long"}
    assert life.aborted > 0
    stats = engine.stats
    assert min(stats.preemptions, stats.out_of_memory, stats.cached_tokens) > 0
    assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)
    pool = engine.scheduler._blocks.pool
    assert pool.num_available == pool.num_blocks == NUM_BLOCKS


def test_two_thousand_requests_leave_nothing_behind(engine: Engine) -> None:
    """Resident memory still grows: torch keeps something for each shape that it first meets."""
    life = live(engine, 2_000)
    check(engine, life, 2_000)
    assert growth(life.blocks) < 0.5


@pytest.mark.chaos
def test_memory_stays_flat_through_fifty_thousand_requests(engine: Engine) -> None:
    life = live(engine, 50_000)
    used = [size / 2**20 for size in life.memory.values()]
    print(
        f"\n50,000 requests in {engine.stats.steps:,} steps: {used[len(used) // 3]:.1f} MiB after "
        f"the first third, {used[-1]:.1f} MiB at the end, {growth(life.memory):.1f} bytes a "
        f"request; {engine.stats}, {dict(life.ended)}, {life.aborted} aborted"
    )
    check(engine, life, 50_000)
    assert growth(life.memory) < 64
