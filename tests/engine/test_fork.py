"""Samples of one prompt: it is computed once, and its blocks are shared by copy on write."""

from __future__ import annotations

import pytest

from engine.batch import Batch
from engine.block_manager import BlockManager
from engine.errors import InvariantError
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence, SequenceStatus
from tests.support.fake_device import Simulation, config, ids

pytestmark = pytest.mark.quick

CACHING = pytest.mark.parametrize("caching", [False, True], ids=["no-cache", "cache"])
PROMPT = (1, 2, 3, 4, 5, 6, 1, 2, 3, 4)  # two blocks of 4, and half a one


def samples(
    count: int, prompt: tuple[int, ...] = PROMPT, name: str = "s", priority: int = 0, **params: int
) -> list[Request]:
    rules = SamplingParams(**{"max_tokens": 6, "ignore_eos": True, **params})  # type: ignore[arg-type]
    return [Request(f"{name}{i}", prompt, rules, priority, i, sample_of=name) for i in range(count)]


def sizes(batch: Batch) -> list[tuple[str, int]]:
    return [(s.request_id, len(s.token_ids)) for s in batch.sequences]


def finished(sim: Simulation) -> Simulation:
    sim.drain()
    sim.check_answers()
    sim.check_no_block_is_lost()
    return sim


@CACHING
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 10])
def test_the_prompt_is_computed_once(caching: bool, length: int) -> None:
    sim = Simulation(config(enable_prefix_caching=caching))
    sim.add(*samples(8, PROMPT[:length]))
    assert sizes(sim.step()) == [("s0", length), *((f"s{i}", 0) for i in range(1, 8))]
    assert sim.device.computed_tokens == length
    finished(sim)
    # The last token of an answer is not computed.
    assert sim.device.computed_tokens == length + 8 * 5
    assert sim.scheduler.stats.prompt_tokens == 8 * length
    assert sim.scheduler.stats.cached_tokens == 7 * length


@CACHING
def test_only_the_last_block_is_copied_and_only_when_they_diverge(caching: bool) -> None:
    sim = Simulation(config(enable_prefix_caching=caching))
    sim.add(*samples(8))
    sim.step()
    assert sim.scheduler.stats.blocks_used == 3  # as many as one of them needs
    batch = sim.step()
    assert sim.scheduler.stats.blocks_used == 2 + 8
    assert len(batch.copies) == 7  # the last holder writes in place
    assert len({s.block_table[:2] for s in batch.sequences}) == 1
    assert len({s.block_table[2] for s in batch.sequences}) == 8
    finished(sim)


@CACHING
def test_a_full_last_block_is_never_copied(caching: bool) -> None:
    sim = Simulation(config(enable_prefix_caching=caching))
    sim.add(*samples(5, PROMPT[:8]))
    sim.step()
    assert sim.scheduler.stats.blocks_used == 2
    assert not sim.step().copies
    assert sim.scheduler.stats.blocks_used == 2 + 5
    finished(sim)


@CACHING
def test_samples_fork_in_the_step_that_ends_a_long_prompt(caching: bool) -> None:
    sim = Simulation(config(max_num_batched_tokens=8, enable_prefix_caching=caching))
    sim.add(*samples(3, tuple(range(20))))
    assert [sizes(sim.step()) for _ in range(3)] == [
        [("s0", 8)],
        [("s0", 8)],
        [("s0", 4), ("s1", 0), ("s2", 0)],
    ]
    finished(sim)


@CACHING
def test_those_without_a_place_fork_later_and_compute_one_token(caching: bool) -> None:
    sim = Simulation(config(max_num_seqs=3, enable_prefix_caching=caching))
    sim.add(*samples(9, PROMPT[:10]))
    sim.step()
    assert sim.scheduler.num_running == 3
    assert sim.scheduler.num_waiting == 6
    finished(sim)
    if not caching:  # each wave has a leader; nobody is left to fork from when all end at once
        assert sim.device.computed_tokens == 3 * 10 + 9 * 5


def test_without_a_cache_a_late_sample_shares_the_prompt_of_one_that_runs() -> None:
    sim = Simulation(config(enable_prefix_caching=False))
    first, *others = samples(3, max_tokens=20)
    sim.add(first)
    sim.step()
    sim.step()
    sim.add(*others)
    batch = sim.step()
    assert sizes(batch) == [("s0", 1), ("s1", 1), ("s2", 0)]
    assert batch.sequences[0].block_table[:2] == batch.sequences[1].block_table[:2]
    assert len(batch.copies) == 1
    finished(sim)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 7])
def test_a_late_sample_copies_from_one_that_gets_its_own_copy_in_the_same_step(
    length: int,
) -> None:
    """What it copies is the block that both copies are made of: the new one is still empty."""
    sim = Simulation(config(enable_prefix_caching=False, max_num_seqs=3))
    sim.add(Request("before", (9,), SamplingParams(2, ignore_eos=True)))
    sim.step()
    sim.add(*samples(3, PROMPT[:length]))  # for the third of them there is no place yet
    assert [s.request_id for s in sim.step().sequences] == ["before", "s0", "s1"]
    batch = sim.step()
    assert [s.request_id for s in batch.sequences] == ["s0", "s1", "s2"]
    assert len(batch.copies) == 1 + (length % 4 > 1)
    assert len({copy.source for copy in batch.copies}) == 1
    finished(sim)


def test_requests_of_other_prompts_or_priorities_do_not_follow() -> None:
    sim = Simulation(config(max_num_batched_tokens=64, enable_prefix_caching=False))
    sim.add(samples(1)[0])
    sim.add(Request("other", PROMPT[:5], sample_of="s"))
    sim.add(Request("urgent", PROMPT, priority=1, sample_of="s"))
    sim.add(Request("alone", PROMPT))
    assert dict(sizes(sim.step())) == {"s0": 10, "other": 5, "urgent": 10, "alone": 10}
    finished(sim)


def test_samples_take_no_place_from_a_higher_priority() -> None:
    sim = Simulation(config(max_num_batched_tokens=8, max_num_seqs=2, enable_prefix_caching=False))
    sim.add(*samples(2, tuple(range(12))))
    sim.step()
    sim.add(Request("urgent", PROMPT[:2], SamplingParams(3), priority=1))
    assert ids(sim.step().sequences) == ["s0", "urgent"]
    finished(sim)


@CACHING
def test_when_the_leader_is_taken_back_another_one_leads(caching: bool) -> None:
    sim = Simulation(config(max_num_batched_tokens=8, enable_prefix_caching=caching))
    sim.add(*samples(4))
    sim.step()
    sim.scheduler.abort("s0")  # in the middle of the prompt
    sim.scheduler.abort("s2")  # that follows
    assert sim.scheduler.num_waiting == 2
    sim.scheduler.check_invariants()
    step = sizes(sim.step())
    assert step[0][0] == "s1"
    sim.requests = {name: sim.requests[name] for name in ("s1", "s3")}
    finished(sim)
    assert sim.ended.keys() == {"s1", "s3"}


@CACHING
@pytest.mark.parametrize("gone", [["s0"], ["s1"], ["s0", "s2"], ["s0", "s1", "s2"]])
def test_samples_are_taken_back_while_the_fork_is_in_flight(caching: bool, gone: list[str]) -> None:
    sim = Simulation(config(enable_prefix_caching=caching))
    sim.add(*samples(3))
    batch = sim.scheduler.schedule()
    for name in gone:
        assert sim.scheduler.abort(name) is not None
        sim.scheduler.check_invariants()
    sim.retire(batch)
    assert sim.scheduler.num_running == 3 - len(gone)
    finished(sim)


@CACHING
def test_a_leader_with_nan_logits_takes_its_forks_with_it_and_nobody_else(caching: bool) -> None:
    sim = Simulation(config(enable_prefix_caching=caching))
    sim.add(*samples(3), *samples(2, PROMPT[:7], "t"))
    sim.device.poison.add("s0")
    sim.step()
    assert {i: s.error_code for i, s in sim.ended.items()} == dict.fromkeys(
        ["s0", "s1", "s2"], "nan_logits"
    )
    sim.add(*samples(2, PROMPT, "again"))
    finished(sim)
    assert all(sim.ended[i].error_code is None for i in ("t0", "t1", "again0", "again1"))


@CACHING
def test_a_fork_that_is_preempted_comes_back_with_the_same_answer(caching: bool) -> None:
    sim = Simulation(config(num_blocks=12, reserve_growth=False, enable_prefix_caching=caching))
    sim.add(*samples(6, max_tokens=16))
    finished(sim)
    assert sim.scheduler.stats.preemptions > 0


def test_a_fork_waits_where_no_block_is_left_for_its_copy() -> None:
    sim = Simulation(config(num_blocks=6, enable_prefix_caching=False, reserve_growth=False))
    sim.add(*samples(8, max_tokens=2))
    sim.step()
    assert sim.scheduler.num_running < 8
    preemptions = sim.scheduler.stats.preemptions
    sim.step()
    assert sim.scheduler.stats.preemptions == preemptions
    finished(sim)


def test_a_block_that_two_would_write_is_found() -> None:
    blocks = BlockManager(8, 4, enable_prefix_caching=False)
    parent, child = (
        Sequence(
            Request(name, PROMPT), 0, pool=blocks.pool, root=None, max_output_tokens=4,
            stop_token_ids=frozenset(),
        )
        for name in ("parent", "child")
    )  # fmt: skip
    assert blocks.admit(parent, 0)
    parent.num_computed_tokens = len(PROMPT)
    blocks.await_fork(parent, child)
    blocks.fork(parent, child)
    parent.status = child.status = SequenceStatus.RUNNING
    blocks.check_invariants([parent, child])
    child.tail_shared = False
    with pytest.raises(InvariantError, match="'child' will write block 2, which it does not own"):
        blocks.check_invariants([parent, child])


def test_a_sample_ends_with_its_first_token() -> None:
    sim = Simulation(config(enable_prefix_caching=False))
    sim.add(*samples(3, max_tokens=1))
    sim.step()
    assert not sim.scheduler.has_unfinished
    assert all(s.finish_reason is FinishReason.LENGTH for s in sim.ended.values())
    finished(sim)
