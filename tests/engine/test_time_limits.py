"""Requests past their time: when it begins, what does not stop it, and what they end with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.core import Engine
from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams
from engine.time_limits import TimeLimits

pytestmark = pytest.mark.quick

PROMPT = tuple(b"A prompt of two blocks and a bit, sixteen tokens each")
LONG = SamplingParams(100, ignore_eos=True, stop=("never said",))


class Clock:
    now = 5000.0

    def __call__(self) -> float:
        return self.now


class Timed:
    """An engine whose steps take a second each."""

    def __init__(self, folder: Path, **settings: int) -> None:
        self.clock = Clock()
        self.engine = Engine(
            EngineConfig(
                str(folder), check_invariants=True,
                **{"num_blocks": 64, "max_model_len": 256, **settings},  # type: ignore[arg-type]
            )
        )  # fmt: skip
        self.engine._limits = TimeLimits(self.clock)

    def add(self, name: str, timeout: float | None, params: SamplingParams = LONG) -> None:
        self.engine.add(Request(name, PROMPT + tuple(name.encode()), params, timeout=timeout))

    def run(self) -> dict[str, RequestOutput]:
        found = {}
        while self.engine.has_unfinished:
            for output in self.engine.step():
                assert output.request_id not in found
                found[output.request_id] = output
            self.clock.now += 1
        assert self.engine.stats.blocks_used == 0
        assert self.engine._limits.overdue() == []
        return found


def is_overdue(output: RequestOutput) -> bool:
    assert (output.error_code == "row_timeout") == (output.finish_reason is FinishReason.ERROR)
    return output.error_code == "row_timeout"


def test_a_request_past_its_time_is_an_error_that_counts_its_tokens(folder: Path) -> None:
    timed = Timed(folder)
    timed.add("slow", 9.5)
    timed.add("in time", 9.5, SamplingParams(9, ignore_eos=True))
    timed.add("without limit", None)
    found = timed.run()
    slow = found["slow"]
    assert is_overdue(slow)
    assert slow.completion_tokens == len(slow.token_ids) == 10
    assert slow.prompt_tokens == len(PROMPT) + 4
    assert slow.error_message == (
        "the row was not answered within 9.5 s (--row-timeout) of its beginning"
    )
    assert not is_overdue(found["in time"])
    assert found["without limit"].completion_tokens == 100


def test_the_time_in_the_queue_does_not_count(folder: Path) -> None:
    timed = Timed(folder, max_num_seqs=1)
    timed.add("first", None)
    for i in range(3):
        timed.add(f"waits {i}", 9.5, SamplingParams(9, ignore_eos=True))
    assert not any(is_overdue(output) for output in timed.run().values())


def test_the_time_after_a_preemption_does(folder: Path) -> None:
    """They begin in the first two steps, and give way to each other as they grow."""
    timed = Timed(folder, num_blocks=12, max_model_len=160)
    for i in range(3):
        timed.add(f"r{i}", 60.5)
    found = timed.run()
    assert timed.engine.stats.preemptions > 0
    overdue = {name for name, output in found.items() if is_overdue(output)}
    assert overdue == {"r0", "r1", "r2"}
    assert timed.clock.now <= 5000.0 + 1 + 61 + 1


def test_a_request_that_was_taken_back_or_has_ended_is_forgotten(folder: Path) -> None:
    timed = Timed(folder)
    timed.add("aborted", 5)
    timed.add("done", 5, SamplingParams(2, ignore_eos=True))
    timed.engine.step()
    timed.engine.abort("aborted")
    timed.run()
    timed.add("done", 50)  # the same name again, with a time of its own
    timed.clock.now += 100
    assert timed.run()["done"].completion_tokens == 50


def test_a_clock_that_is_set_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(EngineConfig(str(folder), num_blocks=64))
    engine.add(Request("r", PROMPT, LONG, timeout=1000.0))
    engine.step()
    now = time.time()
    for jump in (-86400, 86400):
        monkeypatch.setattr(time, "time", lambda jump=jump: now + jump)
        assert engine.step() == []
