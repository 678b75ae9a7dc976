"""Thousands of requests through the scheduler; `tests.support.replay` says what is checked."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.support.replay import Replay, replay


def check(run: Replay, count: int) -> None:
    """All have ended, nothing is left, and there was trouble enough on the way."""
    assert run.answered + run.aborted == count
    assert run.aborted > 0
    stats = run.scheduler.stats
    assert not run.scheduler.has_unfinished
    assert stats.blocks_used == stats.swap_blocks_used == 0
    assert stats.swap_ins > 0
    assert stats.preemptions - stats.swap_outs > 0, "some are to be computed again"
    assert stats.cached_tokens > stats.prompt_tokens / 3


def test_five_thousand_requests() -> None:
    check(replay(5_000, every=10), 5_000)


@pytest.mark.chaos
def test_a_hundred_thousand_requests() -> None:
    """It prints how long they take: a minute at most, where nothing else runs."""
    began = time.process_time()  # of this process, whatever else the machine does
    run = replay(100_000, every=10)
    seconds = time.process_time() - began
    print(f"\n100,000 requests in {seconds:.1f} s of processor time; {run.scheduler.stats}")
    check(run, 100_000)


def test_it_needs_no_torch() -> None:
    code = "import tests.support.replay, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
