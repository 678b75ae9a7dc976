"""Equal prefixes are computed once, and nothing that is unproven is shared."""

from __future__ import annotations

import pytest

from engine.request import FinishReason
from tests.support.fake_device import Simulation, config
from tests.support.scheduling import give, request, sizes

pytestmark = pytest.mark.quick


PREFIX = tuple(range(100, 112))  # 3 blocks


def test_a_finished_prefix_is_found() -> None:
    sim = Simulation(config())
    sim.add(request("a", (*PREFIX, 1)))
    sim.drain()
    sim.add(request("b", (*PREFIX, 2)))
    batch = sim.step()
    assert (sizes(batch), batch.sequences[0].start) == ({"b": 1}, 12)
    sim.drain()
    sim.check_answers()
    assert (sim.ended["a"].cached_tokens, sim.ended["b"].cached_tokens) == (0, 12)
    assert sim.scheduler.stats.cached_tokens == 12


def test_an_equal_prompt_still_computes_its_last_token() -> None:
    sim = Simulation(config())
    for name in "ab":
        sim.add(request(name, PREFIX))
        sim.drain()
    assert sim.ended["b"].cached_tokens == 11
    sim.check_answers()


def test_the_start_of_a_block_that_another_goes_on_with_is_copied() -> None:
    sim = Simulation(config())
    sim.add(request("a", (*PREFIX, 1, 2, 3, 4)))
    sim.drain()
    sim.add(request("b", (*PREFIX, 1, 2, 9, 9, 9)))
    batch = sim.step()
    assert (sizes(batch), batch.sequences[0].start) == ({"b": 3}, 14)
    (copy,) = batch.copies
    assert copy.target == batch.sequences[0].block_table[3] != copy.source
    assert sim.step().copies == ()
    sim.drain()
    sim.check_answers()
    assert sim.ended["b"].cached_tokens == 14


def test_the_first_block_may_be_shared_in_part_too() -> None:
    sim = Simulation(config())
    sim.add(request("a", (1, 2, 3, 4)))
    sim.drain()
    sim.add(request("b", (1, 2, 3, 5, 6)))
    assert sizes(sim.step()) == {"b": 2}
    sim.drain()
    sim.check_answers()


def test_a_block_that_is_copied_may_be_evicted_in_the_same_step() -> None:
    sim = Simulation(config(num_blocks=4))
    sim.add(request("a", (1, 2, 3, 4), max_tokens=1))
    sim.drain()
    sim.add(request("b", (1, 2, 9) + (7,) * 12, max_tokens=1))  # all four blocks
    batch = sim.step()
    assert batch.copies[0].source in batch.sequences[0].block_table
    assert batch.sequences[0].start == 2
    sim.drain()
    sim.check_answers()


def test_what_no_logits_have_proven_is_not_copied() -> None:
    sim = Simulation(config(max_num_batched_tokens=5))
    sim.add(request("a", 12))
    sim.step()  # its first block is written, but no token was sampled after it
    sim.add(request("b", (*request("a", 12).token_ids[:3], 1)))
    sim.step()
    batch = sim.step()
    assert batch.copies == ()
    assert {s.request_id: s.start for s in batch.sequences} == {"a": 10, "b": 0}


def test_generated_blocks_are_found_too() -> None:
    sim = Simulation(config())
    first = request("a", 6, 10)
    sim.add(first)
    sim.drain()
    conversation = first.token_ids + tuple(sim.ended["a"].output_token_ids) + (1, 2)
    sim.add(request("b", conversation))
    sim.drain()
    assert sim.ended["b"].cached_tokens == 12  # 6 + 9 tokens had KV
    sim.check_answers()


def test_a_prefix_in_flight_is_computed_once() -> None:
    sim = Simulation(config(max_num_batched_tokens=64))
    sim.add(*(request(f"r{i}", (*PREFIX, i, i)) for i in range(6)))
    first, second = sim.step(), sim.step()
    assert sizes(first) == {"r0": 14}
    assert sizes(second) == {"r0": 1} | {f"r{i}": 2 for i in range(1, 6)}
    sim.drain()
    sim.check_answers()
    assert sim.scheduler.stats.cached_tokens == 5 * 12


def test_followers_wait_for_a_prefix_of_several_steps() -> None:
    sim = Simulation(config(max_num_batched_tokens=5))
    sim.add(*(request(f"r{i}", (*PREFIX, i, i)) for i in range(3)))
    computed = []
    while sim.scheduler.num_running < 3:
        computed.append(sim.step().num_tokens)
    sim.drain()
    sim.check_answers()
    assert sim.scheduler.stats.cached_tokens == 2 * 12
    assert sum(computed) <= 12 + 3 * 2 + 6


def test_others_behind_the_followers_are_admitted() -> None:
    sim = Simulation(config(max_num_batched_tokens=20))
    sim.add(*(request(f"r{i}", (*PREFIX, i, i)) for i in range(4)), request("other", 5))
    assert sizes(sim.step()) == {"r0": 14, "other": 5}


def test_a_block_is_shared_only_when_the_step_that_wrote_it_has_retired() -> None:
    sim = Simulation(config(max_num_batched_tokens=32))
    sim.add(request("a", (*PREFIX, 1)))
    batch = sim.scheduler.schedule()
    sim.add(request("b", (*PREFIX, 2)))
    assert sim.scheduler._blocks.tree is not None
    assert len(sim.scheduler._blocks.tree) == 0
    sim.retire(batch)
    assert len(sim.scheduler._blocks.tree) == 3
    assert sizes(sim.step())["b"] == 1


def lose_the_leader_by_abort(sim: Simulation) -> None:
    sim.scheduler.abort("r0")


def lose_the_leader_by_nan(sim: Simulation) -> None:
    sim.device.poison.add("r0")


@pytest.mark.parametrize("lose", [lose_the_leader_by_abort, lose_the_leader_by_nan])
@pytest.mark.parametrize("steps_before", [0, 1, 2])
def test_a_follower_takes_over_when_the_leader_is_lost(lose, steps_before: int) -> None:  # type: ignore[no-untyped-def]
    sim = Simulation(config(max_num_batched_tokens=5))
    sim.add(*(request(f"r{i}", (*PREFIX, i, i)) for i in range(3)))
    for _ in range(steps_before):
        sim.step()
    batch = sim.scheduler.schedule()
    lose(sim)
    sim.retire(batch)
    sim.drain()
    sim.check_answers()
    sim.check_no_block_is_lost()
    assert len(sim.ended["r1"].output_token_ids) == 4
    assert len(sim.ended["r2"].output_token_ids) == 4
    # Together they computed the prefix once more at most.
    shared = sim.ended["r1"].cached_tokens + sim.ended["r2"].cached_tokens
    assert shared >= 12


def test_a_follower_takes_over_when_the_leader_is_preempted() -> None:
    sim = Simulation(config(num_blocks=8, max_num_batched_tokens=3))
    sim.add(request("old", 7, 10))
    while sim.scheduler.stats.generated_tokens == 0:
        sim.step()
    sim.add(*(request(f"r{i}", (*PREFIX, i, i), 2) for i in range(2)))
    while sim.scheduler.num_running == 1:
        sim.step()
    # Make the pool tight under the leader; the invariants cannot know of this holder.
    pool, sim.check_every_step = sim.scheduler._blocks.pool, False
    hoard = [pool.allocate() for _ in range(pool.num_available)]
    while sim.scheduler.stats.preemptions == 0:
        sim.step()
    for block in hoard:
        pool.release(block)
    sim.check_every_step = True
    sim.drain()
    sim.check_answers()
    sim.check_no_block_is_lost()
    assert list(sim.ended) == ["old", "r0", "r1"]


def test_blocks_written_by_a_step_with_nan_are_not_shared() -> None:
    sim = Simulation(config())
    sim.add(request("a", (*PREFIX, 1)))
    sim.device.poison.add("a")
    sim.drain()
    assert sim.scheduler.stats.blocks_cached == 0
    sim.add(request("b", (*PREFIX, 2)))
    sim.drain()
    assert sim.ended["b"].cached_tokens == 0
    sim.check_answers()


def test_one_nan_deep_in_a_prompt_does_not_fail_all_that_share_it_forever() -> None:
    sim = Simulation(config(max_num_batched_tokens=5))
    sim.add(request("a", (*PREFIX, 1)))
    sim.device.poison.add("a")  # in the first of three chunks, which samples nothing
    sim.drain()
    assert sim.ended["a"].finish_reason is FinishReason.ERROR
    sim.add(request("b", (*PREFIX, 2)))
    sim.drain()
    assert sim.ended["b"].finish_reason is FinishReason.LENGTH
    sim.check_answers()


def test_a_nan_leaves_blocks_that_served_others_well() -> None:
    sim = Simulation(config())
    sim.add(request("a", (*PREFIX, 1)))
    sim.drain()
    sim.add(request("b", (*PREFIX, 2)))
    sim.device.poison.add("b")
    sim.drain()
    sim.add(request("c", (*PREFIX, 3)))
    sim.drain()
    assert sim.ended["c"].cached_tokens == 12


def test_without_prefix_caching_nothing_is_shared_and_there_is_no_tree() -> None:
    sim = Simulation(config(enable_prefix_caching=False, max_num_batched_tokens=64))
    sim.add(*(request(f"r{i}", (*PREFIX, i, i)) for i in range(3)))
    assert sizes(sim.step()) == {f"r{i}": 14 for i in range(3)}
    assert sim.scheduler._blocks.tree is None
    sim.drain()
    sim.check_answers()
    sim.check_no_block_is_lost()
    assert sim.scheduler.stats.cached_tokens == 0


def test_cached_blocks_give_way_to_running_sequences() -> None:
    sim = Simulation(config(num_blocks=12))
    for number in range(10):
        sim.add(request(f"r{number}", 30, 4))
        sim.drain()
    assert sim.scheduler.stats.preemptions == 0
    sim.check_answers()


def test_a_step_looks_at_few_of_many_waiting_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Simulation(config(max_num_batched_tokens=10, max_num_seqs=4))
    sim.check_every_step = False
    for number in range(5_000):
        sim.scheduler.add(request(f"r{number}", (*PREFIX, number, 1)))
    looked_at = 0
    look_up = sim.scheduler._blocks.look_up

    def count(sequence):  # type: ignore[no-untyped-def]
        nonlocal looked_at
        looked_at += 1
        return look_up(sequence)

    monkeypatch.setattr(sim.scheduler._blocks, "look_up", count)
    for _ in range(6):
        before = looked_at
        batch = sim.scheduler.schedule()
        give(sim, batch)
        assert looked_at - before <= 20
