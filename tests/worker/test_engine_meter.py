"""Counts that go on when one engine follows another."""

import pytest

from engine.messages import STEP_BUCKETS, EngineStats
from worker.engine_meter import EngineMeter

pytestmark = pytest.mark.quick

BUCKETS = tuple(range(len(STEP_BUCKETS) + 1))


def stats(**more):
    return EngineStats(
        **{
            "running": 3, "waiting": 4, "blocks_used": 5, "blocks_cached": 6, "blocks_total": 99,
            "steps": 78, "prompt_tokens": 100, "cached_tokens": 40, "generated_tokens": 50,
            "late_tokens": 8, "preemptions": 2, "swap_outs": 3, "swap_ins": 1,
            "swap_blocks_used": 11, "swap_blocks_total": 12, "step_seconds": 1.5,
            "step_buckets": BUCKETS, "out_of_memory": 7,
            **more,
        }
    )  # fmt: skip


def test_before_any_report_there_is_nothing():
    totals = EngineMeter().totals()
    assert totals == EngineStats(step_buckets=(0,) * len(BUCKETS))


def test_a_report_replaces_the_one_before():
    meter = EngineMeter()
    meter.take(stats(generated_tokens=1, running=1))
    meter.take(stats())
    assert meter.totals() == stats()


def test_a_dead_engine_holds_nothing_and_its_counts_stay():
    meter = EngineMeter()
    meter.take(stats())
    meter.engine_died()
    assert meter.totals() == stats(
        running=0, waiting=0, blocks_used=0, blocks_cached=0, blocks_total=0,
        swap_blocks_used=0, swap_blocks_total=0,
    )  # fmt: skip
    meter.engine_died()  # the next died while it loaded
    assert meter.totals().generated_tokens == 50


def test_the_counts_of_the_next_engine_are_added():
    meter = EngineMeter()
    meter.take(stats())
    meter.engine_died()
    assert meter.restarts == 0
    meter.engine_restarted()
    meter.take(EngineStats())  # it is ready, and has made no step
    assert meter.totals().generated_tokens == 50
    meter.take(stats(running=1))
    assert meter.restarts == 1
    assert meter.totals() == stats(
        running=1, steps=156, prompt_tokens=200, cached_tokens=80, generated_tokens=100,
        late_tokens=16, preemptions=4, swap_outs=6, swap_ins=2, out_of_memory=14, step_seconds=3.0,
        step_buckets=tuple(2 * n for n in BUCKETS),
    )  # fmt: skip


def test_every_count_of_the_engine_is_a_sum_and_every_level_is_not():
    """A field that is new must be one or the other here too."""
    levels = {
        "running", "waiting", "blocks_used", "blocks_cached", "blocks_total", "swap_blocks_used",
        "swap_blocks_total",
    }  # fmt: skip
    meter = EngineMeter()
    meter.take(stats())
    meter.engine_died()
    meter.take(stats())
    for name in EngineStats.__dataclass_fields__:
        now, once = getattr(meter.totals(), name), getattr(stats(), name)
        assert (now == once) == (name in levels), name


def test_speed_is_zero_at_first_and_does_not_fall_when_an_engine_dies():
    meter = EngineMeter()
    assert meter.tokens_per_second() == 0.0
    meter.take(stats())
    before = meter.tokens_per_second()
    assert before > 0
    meter.engine_died()
    meter.take(EngineStats())
    assert meter.tokens_per_second() > 0
