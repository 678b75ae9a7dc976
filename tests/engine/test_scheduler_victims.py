"""Who makes room: lowest priority, last to come, fewest tokens lost, latest arrival."""

from __future__ import annotations

import pytest

from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.support.fake_device import Simulation, config, ids

pytestmark = pytest.mark.quick


def request(name: str, length: int, priority: int = 0, tail: tuple[int, ...] = ()) -> Request:
    """One whose answer may end at any time, as far as the scheduler knows, but does not."""
    prompt = tuple(ord(name) * 1000 + i for i in range(length)) + tail
    params = SamplingParams(max_tokens=40, ignore_eos=True, stop_token_ids=(99,))
    return Request(name, prompt, params, priority)


def first_victim(*waves: list[Request], num_blocks: int) -> str:
    """Who is preempted first when requests come wave by wave."""
    sim = Simulation(config(num_blocks=num_blocks, max_num_batched_tokens=200))
    for wave in waves:
        sim.add(*wave)
        sim.step()
    running = ids(sim.scheduler.running_sequences)
    assert sorted(running) == sorted(r.request_id for wave in waves for r in wave)
    while sim.scheduler.stats.preemptions == 0:
        sim.step()
    (victim,) = set(running) - set(ids(sim.scheduler.running_sequences))
    sim.drain()
    sim.check_answers()
    return victim


def test_the_lowest_priority_even_if_it_came_first_and_loses_the_most() -> None:
    waves = [request("a", 20, -1)], [request("b", 4)], [request("c", 4)]
    assert first_victim(*waves, num_blocks=16) == "a"


def test_of_equal_priority_the_last_to_come_even_if_it_loses_the_most() -> None:
    waves = [request("a", 4)], [request("b", 4)], [request("c", 20)]
    assert first_victim(*waves, num_blocks=16) == "c"


@pytest.mark.parametrize("lengths", [(4, 20, 12), (12, 4, 20), (20, 12, 4)])
def test_of_those_that_came_together_the_one_that_loses_the_fewest_tokens(
    lengths: tuple[int, int, int],
) -> None:
    wave = [request(name, length) for name, length in zip("abc", lengths, strict=True)]
    assert first_victim(wave, num_blocks=18) == "abc"[lengths.index(4)]


def test_tokens_in_blocks_that_others_hold_too_are_not_lost() -> None:
    first = request("s", 16)
    sim = Simulation(config(num_blocks=22, max_num_batched_tokens=200))
    sim.add(first)
    sim.step()
    # Two that read the blocks of the first, and one shorter prompt of its own.
    shared = [Request(name, (*first.token_ids, ord(name)), first.params, -1) for name in ("x", "y")]
    sim.add(*shared, request("z", 8, -1))
    while sim.scheduler.stats.preemptions == 0:
        sim.step()
    running = ids(sim.scheduler.running_sequences)
    assert "z" in running
    assert sorted(set("xy") - set(running)) == ["y"], "of equals the latest"
    sim.drain()
    sim.check_answers()


def test_of_equal_ones_the_latest_arrival() -> None:
    assert first_victim([request(name, 8) for name in "abc"], num_blocks=13) == "c"


def test_requests_came_together_if_no_step_was_planned_between_them() -> None:
    sim = Simulation(config())
    sim.add(request("a", 4), request("b", 4))
    batch = sim.scheduler.schedule()
    sim.add(request("c", 4))
    sim.retire(batch)
    sim.add(request("d", 4))
    sim.step()
    sim.add(request("e", 4))
    waves = {s.request_id: s.wave for s in sim.scheduler._sequences.values()}
    assert waves == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2}


def test_one_that_gives_no_block_back_is_no_victim_if_another_does() -> None:
    sim = Simulation(config(num_blocks=20, max_num_batched_tokens=200))
    sim.add(request("a", 8), request("b", 12))
    sim.step()
    a, b = sim.scheduler.running_sequences
    preemption = sim.scheduler._preemption
    assert preemption._choose_victim() is a
    twin = a.block_table.fork()
    assert preemption._choose_victim() is b
    twin.release()
    assert preemption._choose_victim() is a
