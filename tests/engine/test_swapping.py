"""A model whose requests are swapped out gives the tokens that it gives with room for all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.batch import Batch, SampledToken
from engine.config import EngineConfig
from engine.core import Engine
from engine.request import Request, RequestOutput
from engine.sampling_params import SamplingParams
from engine.swap_cost import SwapCost
from engine.time_limits import TimeLimits

SHARED = tuple(b"A beginning that several of the prompts have, longer than two blocks. ")


def requests() -> list[Request]:
    """Greedy and sampled rows of open length, with shared prompts and log probabilities."""
    open_end = {"ignore_eos": True, "stop_token_ids": (1 << 30,)}
    greedy = SamplingParams(60, **open_end)  # type: ignore[arg-type]
    hot = SamplingParams(70, temperature=1.0, seed=3, logprobs=1, **open_end)  # type: ignore[arg-type]
    return [
        *(Request(f"shared {n}", SHARED + (n,) * n, greedy) for n in range(1, 6)),
        *(Request(f"own {n}", tuple(range(n, n + 30)), greedy, n % 2) for n in range(4)),
        *(Request(f"sample {i}", SHARED, hot, sample_index=i) for i in range(3)),
    ]


def engine_of(folder: Path, **settings: Any) -> Engine:
    return Engine(
        EngineConfig(
            str(folder),
            **{
                "max_model_len": 200, "max_num_seqs": 8, "max_num_batched_tokens": 64,
                "check_invariants": True, "threads": 1, **settings,
            },
        )
    )  # fmt: skip


def always_swap(engine: Engine) -> None:
    """Whatever copying costs here, beside this tiny model."""
    engine.scheduler._swap._cost = SwapCost()


def answers(engine: Engine) -> dict[str, tuple[Any, ...]]:
    found: dict[str, RequestOutput] = {o.request_id: o for o in engine.generate(requests())}
    assert engine.stats.blocks_used == engine.stats.swap_blocks_used == 0
    return {
        i: (o.token_ids, o.text, o.finish_reason, len(o.logprobs or ())) for i, o in found.items()
    }


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> dict[str, tuple[Any, ...]]:
    engine = engine_of(folder, num_blocks=512)
    found = answers(engine)
    assert engine.stats.preemptions == 0
    return found


@pytest.mark.parametrize("block_size", [8, 16])
@pytest.mark.parametrize("caching", [True, False])
def test_answers_are_those_without_preemption(
    folder: Path, undisturbed: dict[str, tuple[Any, ...]], block_size: int, caching: bool
) -> None:
    engine = engine_of(
        folder, num_blocks=320 // block_size, block_size=block_size,
        enable_prefix_caching=caching, swap_space=0.01,
    )  # fmt: skip
    always_swap(engine)
    assert answers(engine) == undisturbed
    stats = engine.stats
    assert stats.swap_ins == stats.swap_outs > 0
    assert stats.swap_blocks_total > 0


def test_without_swap_space_they_are_computed_again(
    folder: Path, undisturbed: dict[str, tuple[Any, ...]]
) -> None:
    engine = engine_of(folder, num_blocks=20, swap_space=0)
    assert answers(engine) == undisturbed
    assert engine.stats.preemptions > 0
    assert (engine.stats.swap_outs, engine.stats.swap_blocks_total) == (0, 0)


def test_the_cost_of_a_token_is_learned_from_the_steps(folder: Path) -> None:
    engine = engine_of(folder, num_blocks=20)
    cost = engine._swap_cost
    assert engine.scheduler._swap._cost is cost
    assert cost.is_lower(10**9, 1), "nothing is known before a step"
    for _ in engine.generate(requests()[:2]):
        pass
    assert not cost.is_lower(10**9, 1)
    assert cost.is_lower(0, 1)


def test_a_step_that_runs_out_of_memory_moves_each_block_once(
    folder: Path, undisturbed: dict[str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is computed again in parts, when others may have written where it was read."""
    engine = engine_of(folder, num_blocks=20)
    always_swap(engine)
    execute, moved, planned = engine.runner.execute, [0, 0], [0, 0]
    pool = engine._steps._swap
    assert pool is not None

    def counted(number: int, copy: Callable[[Any], None]) -> Callable[[Any], None]:
        def count(copies: Any) -> None:
            moved[number] += len(copies)
            copy(copies)

        return count

    monkeypatch.setattr(pool, "swap_out", counted(0, pool.swap_out))
    monkeypatch.setattr(pool, "swap_in", counted(1, pool.swap_in))
    schedule = engine.scheduler.schedule

    def noted() -> Batch:
        batch = schedule()
        planned[0] += len(batch.swap_out)
        planned[1] += len(batch.swap_in)
        return batch

    def limited(batch: Batch) -> list[SampledToken]:
        tokens = execute(batch)
        if batch.num_tokens > 2:
            raise MemoryError  # what it wrote stays written
        return tokens

    monkeypatch.setattr(engine.scheduler, "schedule", noted)
    monkeypatch.setattr(engine.runner, "execute", limited)
    assert answers(engine) == undisturbed
    assert engine.stats.out_of_memory > 0
    assert moved == planned
    assert min(planned) > 0


def test_copies_that_find_no_memory_are_made_in_smaller_groups(
    folder: Path, undisturbed: dict[str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(folder, num_blocks=20)
    always_swap(engine)
    pool = engine._steps._swap
    assert pool is not None

    def limited(copy: Callable[[Any], None]) -> Callable[[Any], None]:
        def few(copies: Any) -> None:
            copy(copies[:2])
            if len(copies) > 2:
                raise MemoryError

        return few

    monkeypatch.setattr(pool, "swap_out", limited(pool.swap_out))
    monkeypatch.setattr(pool, "swap_in", limited(pool.swap_in))
    assert answers(engine) == undisturbed
    assert engine.stats.out_of_memory > 0
    assert engine.stats.swap_ins > 0


def test_requests_that_end_on_the_host_leave_nothing_there(folder: Path) -> None:
    """Taken back, and past their time."""
    engine = engine_of(folder, num_blocks=20)
    always_swap(engine)
    now = [0.0]
    engine._limits = TimeLimits(lambda: now[0])
    for request in requests():
        engine.add(dataclasses.replace(request, timeout=60.0))
    swapped: set[str] = set()
    while len(swapped) < 2:
        assert engine.step() == [], "some ended before two were swapped out"
        sequences = engine.scheduler._sequences.values()
        swapped = {s.request_id for s in sequences if s.swapped is not None}
    taken_back = swapped.pop()
    engine.abort(taken_back)
    now[0] = 61.0
    late = {o.request_id for o in engine.step() if o.error_code == "row_timeout"}
    assert swapped <= late
    assert taken_back not in late
    assert engine.stats.swap_blocks_used == 0
    while engine.has_unfinished:
        engine.step()
    assert engine.stats.blocks_used == engine.stats.swap_blocks_used == 0
