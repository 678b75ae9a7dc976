"""Beams in the scheduler: they share blocks, run and wait as one, and end as one."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from engine.errors import RequestError
from engine.growth import Growth
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence
from tests.support.fake_device import Simulation, config, ids

pytestmark = pytest.mark.quick

CACHING = pytest.mark.parametrize("caching", [False, True], ids=["no-cache", "cache"])
PROMPT = (1, 2, 3, 4, 5, 6, 1, 2, 3, 4)  # two blocks of 4, and half a one


def beams(
    name: str = "b", width: int = 3, prompt: tuple[int, ...] = PROMPT, priority: int = 0,
    **params: Any,
) -> Request:  # fmt: skip
    rules = {"max_tokens": 8, "ignore_eos": True, "num_return_sequences": width, **params}
    return Request(name, prompt, SamplingParams(num_beams=width, **rules), priority)


def plain(name: str, length: int, priority: int = 0, **params: Any) -> Request:
    prompt = tuple(crc32(f"{name} {i}".encode()) % 1000 for i in range(length))
    return Request(name, prompt, SamplingParams(**{"max_tokens": 9, **params}), priority)


def finished(sim: Simulation) -> Simulation:
    sim.drain()
    sim.check_answers()
    sim.check_no_block_is_lost()
    return sim


@CACHING
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 10])
@pytest.mark.parametrize("block_size", [1, 4, 8])
def test_a_search_finds_what_it_finds_alone(caching: bool, length: int, block_size: int) -> None:
    sim = Simulation(config(enable_prefix_caching=caching, block_size=block_size, num_blocks=128))
    sim.add(beams(prompt=PROMPT[:length]), beams("d", 2, early_stopping=True, ignore_eos=False))
    sim.add(plain("p", 6), beams("e", 3, stop_token_ids=(3, 5), length_penalty=2.0))
    finished(sim)
    assert sim.scheduler.stats.preemptions == 0


@CACHING
def test_the_prompt_is_computed_once_and_its_blocks_are_shared(caching: bool) -> None:
    sim = Simulation(config(enable_prefix_caching=caching))
    sim.add(beams(width=4))
    assert [len(s.token_ids) for s in sim.step().sequences] == [10]
    assert sim.scheduler.stats.blocks_used == 3
    batch = sim.step()
    assert [len(s.token_ids) for s in batch.sequences] == [1] * 4
    assert len({s.block_table[:2] for s in batch.sequences}) == 1
    assert len({s.block_table[2] for s in batch.sequences}) == 4
    assert len(batch.copies) == 3  # the last holder writes in place
    assert sim.scheduler.stats.blocks_used <= 2 + 4
    finished(sim)
    assert sim.device.computed_tokens == 10 + 4 * 7


def test_all_beams_count_in_the_batch() -> None:
    sim = Simulation(config(max_num_seqs=8, enable_prefix_caching=False))
    sim.add(plain("p", 3, ignore_eos=True), beams("a", 3), beams("b", 3), beams("c", 3))
    sim.step()
    assert ids(sim.scheduler.running_sequences) == ["p", "a", "b"]  # 1 + 3 + 3 of 8
    assert sim.scheduler.num_waiting == 1
    assert len(sim.step().sequences) == 7
    finished(sim)


@pytest.mark.parametrize(
    ("width", "settings", "params", "code", "field"),
    [
        (9, {}, {}, "too_many_beams", "num_beams"),
        (5, {"max_num_batched_tokens": 4}, {}, "too_many_beams", "num_beams"),
        (8, {"num_blocks": 25}, {"max_tokens": 8}, "kv_cache_too_small", "max_tokens"),
    ],
)
def test_a_search_that_can_never_run_is_refused(
    width: int, settings: dict[str, int], params: dict[str, int], code: str, field: str
) -> None:
    sim = Simulation(config(**settings))
    with pytest.raises(RequestError) as caught:
        sim.scheduler.add(beams(width=width, **params))
    assert (caught.value.code, caught.value.field) == (code, field)
    assert not sim.scheduler.has_unfinished


@CACHING
def test_a_search_fits_into_the_smallest_pool_that_is_not_refused(caching: bool) -> None:
    sim = Simulation(
        config(num_blocks=2 + 4 * 3, enable_prefix_caching=caching, reserve_growth=False)
    )
    sim.add(beams(width=4, max_tokens=9))
    finished(sim)
    assert sim.scheduler.stats.preemptions == 0


@CACHING
@pytest.mark.parametrize("first", ["search", "others"])
def test_a_search_is_preempted_as_a_whole_and_goes_on_where_it_was(
    caching: bool, first: str
) -> None:
    sim = Simulation(config(num_blocks=20, enable_prefix_caching=caching, reserve_growth=False))
    search = beams(width=3, max_tokens=20)
    others = [plain(f"p{i}", 7, max_tokens=20, ignore_eos=True) for i in range(3)]
    sim.add(*([search, *others] if first == "search" else [*others, search]))
    finished(sim)
    assert sim.scheduler.stats.preemptions > 0


def test_two_searches_take_turns_where_one_nearly_fills_the_pool() -> None:
    sim = Simulation(config(num_blocks=18, reserve_growth=False, enable_prefix_caching=False))
    sim.add(*(beams(f"b{i}", 4, max_tokens=9, prompt=(i, *PROMPT)) for i in range(4)))
    finished(sim)


@CACHING
@pytest.mark.parametrize("reserve", [False, True], ids=["no-reserve", "reserve"])
def test_searches_that_cannot_grow_together_do_not_start_together(
    caching: bool, reserve: bool
) -> None:
    """Each may come to need 20 blocks of 44; without looking ahead, all of them would start."""
    sim = Simulation(
        config(
            num_blocks=44, max_num_seqs=16, reserve_growth=reserve, enable_prefix_caching=caching
        )
    )
    searches = [beams(f"b{i}", 3, max_tokens=20, prompt=(i, *PROMPT[1:])) for i in range(5)]
    sim.add(*searches, plain("p", 6, max_tokens=20, ignore_eos=True))
    sim.step()
    together = len(ids(sim.scheduler.running_sequences))
    assert together > 1
    finished(sim)
    assert (sim.scheduler.stats.preemptions == 0) == reserve


@pytest.mark.parametrize("steps", [0, 1, 5, 12])
def test_what_a_search_will_need_covers_what_it_comes_to_need(steps: int) -> None:
    sim = Simulation(config(num_blocks=64, enable_prefix_caching=False))
    sim.add(beams("b", 4, max_tokens=16))
    sim.step()
    for _ in range(steps):
        sim.step()
    held = sim.scheduler.stats.blocks_used
    (group,) = sim.scheduler.running_sequences
    newcomer = Sequence(
        plain("p", 5), 1, pool=group.block_table.pool, root=None, max_output_tokens=9,
        stop_token_ids=frozenset({0}),
    )  # fmt: skip
    look_ahead = Growth([group], 4).reserve_for(newcomer, 0)
    most = held
    while sim.scheduler.has_unfinished:
        sim.step()
        most = max(most, sim.scheduler.stats.blocks_used)
    assert 0 <= most - held <= look_ahead + 4 / 2  # half a block a beam


@CACHING
def test_a_search_is_taken_back_at_every_step_of_it(caching: bool) -> None:
    for when in range(12):
        sim = Simulation(config(enable_prefix_caching=caching, max_num_batched_tokens=8))
        sim.add(beams(width=3), plain("p", 5))
        for _ in range(when):
            sim.step()
        batch = sim.scheduler.schedule()
        sim.scheduler.abort("b")  # while it is in flight
        sim.scheduler.check_invariants()
        sim.retire(batch)
        finished(sim)
    assert "b" in sim.ended


@CACHING
def test_nan_in_one_beam_ends_the_search_and_nobody_else(caching: bool) -> None:
    sim = Simulation(config(enable_prefix_caching=caching))
    sim.add(beams(), plain("p", 5), beams("d", 2, prompt=PROMPT[:7]))
    sim.step()
    sim.step()
    sim.device.poison.add("b")
    finished(sim)
    assert sim.ended["b"].error_code == "nan_logits"
    assert sim.ended["b"].finish_reason is FinishReason.ERROR
    assert sim.ended["p"].error_code is None
    assert sim.ended["d"].error_code is None


def test_beams_wait_for_one_another_where_the_budget_splits_them() -> None:
    """After a preemption each beam has several tokens to compute, more than one step takes."""
    sim = Simulation(
        config(
            num_blocks=18, max_num_batched_tokens=6, enable_prefix_caching=False,
            reserve_growth=False,
        )
    )  # fmt: skip
    sim.add(
        plain("p", 4, max_tokens=40, ignore_eos=True),
        plain("q", 9, max_tokens=20, ignore_eos=True),
        beams(width=4, max_tokens=12),
    )
    finished(sim)
    assert sim.scheduler.stats.preemptions > 0
