"""Who gives way when the pool is full, what it keeps, and how that is avoided."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.fake_device import Simulation, config, ids
from tests.support.scheduling import request

pytestmark = pytest.mark.quick


OPEN_END = {"stop_token_ids": (99,)}  # it may end early, though it never does


def two_that_do_not_fit(priority_of_first: int = 0, **changes: object) -> Simulation:
    """Two requests that begin with 2 blocks each and grow, in a pool of 7 blocks."""
    sim = Simulation(config(num_blocks=7, **changes))
    sim.add(request("a", 8, 13, priority_of_first, **OPEN_END), request("b", 8, 13, **OPEN_END))
    return sim


def run_until_preemption(sim: Simulation) -> None:
    while sim.scheduler.stats.preemptions == 0:
        assert sim.step(), "all ended without a preemption"


@pytest.mark.parametrize(("priority", "victim"), [(0, "b"), (1, "b"), (-1, "a")])
def test_the_lowest_priority_and_latest_arrival_is_preempted(priority: int, victim: str) -> None:
    sim = two_that_do_not_fit(priority)
    run_until_preemption(sim)
    assert victim not in ids(sim.scheduler.running_sequences)
    assert (sim.scheduler.num_running, sim.scheduler.num_waiting) == (1, 1)
    sim.drain()
    sim.check_answers()


def test_the_asker_may_be_the_victim() -> None:
    sim = Simulation(config(num_blocks=7))
    # b reaches the end of its blocks first.
    sim.add(request("a", 9, 12, **OPEN_END), request("b", 8, 13, **OPEN_END))
    run_until_preemption(sim)
    assert ids(sim.scheduler.running_sequences) == ["a"]


def test_a_preempted_sequence_keeps_its_sample_index_and_its_log_probabilities() -> None:
    sim = Simulation(config(num_blocks=7))
    a, b = (request(name, 8, 13, logprobs=0, **OPEN_END) for name in "ab")
    sim.add(dataclasses.replace(a, sample_index=3), dataclasses.replace(b, sample_index=4))
    planned = set()
    while sim.scheduler.has_unfinished:
        planned |= {(s.request_id, s.sample_index) for s in sim.step().sequences}
    assert sim.scheduler.stats.preemptions > 0
    assert planned == {("a", 3), ("b", 4)}
    assert len(sim.ended["b"].logprobs) == 13
    sim.check_answers()


def test_a_preempted_sequence_keeps_its_tokens_and_matches_the_cache_on_return() -> None:
    sim = two_that_do_not_fit()
    run_until_preemption(sim)
    (b,) = (s for s in sim.scheduler._sequences.values() if s.request_id == "b")
    had = list(b.output_token_ids)
    assert had
    assert (len(b.block_table), b.num_computed_tokens) == (0, 0)
    while b.num_admissions == 1:
        batch = sim.step()
    (back,) = (s for s in batch.sequences if s.request_id == "b")
    assert b.output_token_ids[: len(had)] == had
    assert back.start > 0, "its first block was still cached"
    assert back.end == 8 + len(had)
    sim.drain()
    sim.check_answers()
    assert b.cached_tokens == 0, "counted at the first admission only"
    assert sim.scheduler.stats.prompt_tokens == 16


def test_a_preempted_sequence_returns_before_others_of_its_priority() -> None:
    sim = two_that_do_not_fit()
    sim.add(request("c", 8, 2))
    sim.drain()
    assert list(sim.ended) == ["a", "b", "c"]


def test_answers_of_known_length_are_begun_only_if_they_can_grow_to_their_end() -> None:
    sim = Simulation(config(num_blocks=7))
    sim.add(request("a", 8, 13), request("b", 8, 13))  # 5 blocks each at their end
    sim.step()
    assert ids(sim.scheduler.running_sequences) == ["a"]
    sim.drain()
    assert (list(sim.ended), sim.scheduler.stats.preemptions) == (["a", "b"], 0)


def test_without_a_reserve_they_are_begun_and_preempted() -> None:
    sim = Simulation(config(num_blocks=7, reserve_growth=False))
    sim.add(request("a", 8, 13), request("b", 8, 13))
    sim.step()
    assert sim.scheduler.num_running == 2
    run_until_preemption(sim)
    sim.drain()
    sim.check_answers()


def test_a_short_answer_runs_before_a_long_one_needs_its_blocks() -> None:
    sim = Simulation(config(num_blocks=7))
    sim.add(request("a", 8, 13), request("b", 8, 4))  # 5 and 3 blocks, but b ends long before
    sim.step()
    assert sim.scheduler.num_running == 2
    sim.drain()
    assert sim.scheduler.stats.preemptions == 0


def test_an_admission_leaves_room_for_the_next_block_of_each_sequence() -> None:
    sim = Simulation(config(num_blocks=7))
    sim.add(request("a", 8, 9), request("b", 12, 2))
    sim.step()
    # 2 + 3 blocks of 7 would leave 2, one each. One token more would leave too little.
    assert sim.scheduler.num_running == 2
    sim = Simulation(config(num_blocks=7))
    sim.add(request("a", 8, 9), request("b", 13, 2))
    sim.step()
    assert sim.scheduler.num_running == 1
    sim.drain()
    assert sim.scheduler.stats.preemptions == 0


def test_one_request_that_needs_the_whole_pool_gets_its_turn() -> None:
    sim = Simulation(config(num_blocks=10, max_num_batched_tokens=16))
    sim.add(request("small", 8, 6), request("huge", 30, 11))
    for number in range(20):
        sim.add(request(f"later{number}", 8, 6))
    sim.drain(max_steps=600)
    sim.check_answers()
    assert list(sim.ended)[:2] == ["small", "huge"]
