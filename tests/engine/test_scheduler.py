"""The scheduler's rules, one by one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from engine.batch import Batch, SampledToken
from engine.errors import ConfigError, EngineError, InvariantError, RequestError
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.sequence import SequenceStatus
from tests.support.fake_device import EOS, Simulation, config, ids, undisturbed

pytestmark = pytest.mark.quick


def request(
    name: str,
    prompt: tuple[int, ...] | int,
    max_tokens: int = 4,
    priority: int = 0,
    **params: object,
) -> Request:
    """A request that goes on after eos ids; a number is a prompt of that length of its own."""
    if isinstance(prompt, int):
        prompt = tuple(hash((name, i)) % 1000 for i in range(prompt))
    params.setdefault("ignore_eos", True)
    return Request(name, prompt, SamplingParams(max_tokens=max_tokens, **params), priority)  # type: ignore[arg-type]


def sizes(batch: Batch) -> dict[str, int]:
    return {s.request_id: len(s.token_ids) for s in batch.sequences}


def give(sim: Simulation, batch: Batch, **tokens: int) -> list[str]:
    """Retire a batch with chosen tokens; sequences that are not named get token 1."""
    sampled = [
        SampledToken(s.request_id, tokens.get(s.request_id, 1))
        for s in batch.sequences
        if s.samples
    ]
    return ids(sim.scheduler.retire(batch, sampled))


# ---- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "code", "message", "field"),
    [
        ((), 4, "empty_prompt", "no tokens", "prompt"),
        (64, 4, "prompt_too_long", r"64 tokens, but .* 64; .* 63 tokens", "prompt"),
        (30, 12, "kv_cache_too_small", r"30 tokens .* 12, .* 40 \(10 blocks of 4\)", "max_tokens"),
        (50, 1, "kv_cache_too_small", "num_blocks", "prompt"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused(
    prompt: tuple[int, ...] | int, max_tokens: int, code: str, message: str, field: str
) -> None:
    sim = Simulation(config(num_blocks=10))
    with pytest.raises(RequestError, match=message) as caught:
        sim.scheduler.add(request("a", prompt, max_tokens))
    assert (caught.value.code, caught.value.field) == (code, field)
    assert not sim.scheduler.has_unfinished


def test_a_request_that_fills_the_pool_to_the_last_slot_is_served() -> None:
    sim = Simulation(config(num_blocks=10))
    sim.add(request("a", 30, 11))
    sim.drain()
    assert len(sim.ended["a"].output_token_ids) == 11


def test_an_id_is_refused_while_its_request_lives_and_free_afterwards() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5, 1))
    with pytest.raises(RequestError, match="'a' is still in the engine") as caught:
        sim.scheduler.add(request("a", 5, 1))
    assert caught.value.code == "duplicate_request"
    sim.drain()
    sim.add(request("a", 5, 1))
    sim.drain()


@pytest.mark.parametrize("name", ["num_blocks", "block_size", "max_num_seqs", "max_model_len"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0; it must be 1 or more"):
        config(**{name: 0})


# ---- when a sequence ends -------------------------------------------------------------------


def test_max_tokens_ends_with_length() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5, 3))
    sim.drain()
    ended = sim.ended["a"]
    assert (len(ended.output_token_ids), ended.finish_reason) == (3, FinishReason.LENGTH)


def test_max_tokens_is_capped_by_the_models_length() -> None:
    sim = Simulation(config(max_model_len=10))
    sim.add(request("a", 7, 100))
    sim.drain()
    ended = sim.ended["a"]
    assert (len(ended.output_token_ids), ended.finish_reason) == (3, FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("params", "token", "reason"),
    [
        ({"ignore_eos": False}, EOS, FinishReason.STOP),
        ({"ignore_eos": True}, EOS, None),
        ({"ignore_eos": True, "stop_token_ids": (5,)}, 5, FinishReason.STOP),
        ({"ignore_eos": True, "stop_token_ids": (5,)}, EOS, None),
        ({"ignore_eos": False, "stop_token_ids": (5,)}, EOS, FinishReason.STOP),
        ({"ignore_eos": False}, 5, None),
    ],
)
def test_stop_tokens(params: dict[str, object], token: int, reason: FinishReason | None) -> None:
    sim = Simulation(config())
    sim.add(request("a", 3, **params))
    (sequence,) = sim.scheduler.retire(sim.scheduler.schedule(), [SampledToken("a", token)])
    assert sequence.finish_reason is reason
    assert sequence.output_token_ids == [token]
    assert sim.scheduler.has_unfinished == (reason is None)


def test_a_stop_token_at_the_last_place_is_a_stop() -> None:
    sim = Simulation(config())
    sim.add(request("a", 3, 1, ignore_eos=False))
    (sequence,) = sim.scheduler.retire(sim.scheduler.schedule(), [SampledToken("a", EOS)])
    assert sequence.finish_reason is FinishReason.STOP


def test_the_caller_can_end_a_sequence() -> None:
    sim = Simulation(config())
    sim.add(request("a", 3))
    sim.step()
    sim.scheduler.finish("a", FinishReason.STOP)
    assert not sim.scheduler.has_unfinished
    assert sim.scheduler.stats.blocks_used == 0
    with pytest.raises(EngineError, match="cannot finish 'a'"):
        sim.scheduler.finish("a", FinishReason.STOP)


def test_nan_ends_one_sequence_with_an_error_and_no_other() -> None:
    sim = Simulation(config())
    sim.add(request("a", 6), request("b", 6))
    sim.step()
    sim.device.poison.add("a")
    sim.drain()
    ended = sim.ended["a"]
    assert (ended.finish_reason, ended.error_code) == (FinishReason.ERROR, "nan_logits")
    assert len(ended.output_token_ids) == 1
    sim.check_answers()


# ---- what a step holds ----------------------------------------------------------------------


def test_nothing_to_do_is_an_empty_batch() -> None:
    sim = Simulation(config())
    batch = sim.scheduler.schedule()
    assert not batch
    assert sim.scheduler.retire(batch, []) == []
    assert sim.scheduler.stats.steps == 0


def test_prompts_are_cut_to_fill_the_budget() -> None:
    sim = Simulation(config(max_num_batched_tokens=10))
    sim.add(request("a", 14), request("b", 9))
    first, second, third = sim.step(), sim.step(), sim.step()
    assert sizes(first) == {"a": 10}
    assert not first.sequences[0].samples
    assert sizes(second) == {"a": 4, "b": 6}
    assert [s.samples for s in second.sequences] == [True, False]
    assert sizes(third) == {"a": 1, "b": 3}
    assert [s.start for s in third.sequences] == [14, 6]
    assert [b.step for b in (first, second, third)] == [1, 2, 3]


def test_decodes_then_begun_prompts_then_new_ones() -> None:
    sim = Simulation(config(max_num_batched_tokens=10))
    sim.add(request("decodes", 4), request("begun", 12))
    sim.step()
    sim.add(request("new", 2, priority=1))
    assert list(sizes(sim.step()).items()) == [("decodes", 1), ("begun", 6), ("new", 2)]


def test_no_more_sequences_run_than_allowed() -> None:
    sim = Simulation(config(max_num_seqs=2))
    sim.add(*(request(name, 3) for name in "abc"))
    assert sizes(sim.step()).keys() == {"a", "b"}
    assert (sim.scheduler.num_running, sim.scheduler.num_waiting) == (2, 1)
    assert ids(sim.scheduler.running_sequences) == ["a", "b"]


def test_no_more_sequences_run_than_the_budget_has_tokens() -> None:
    sim = Simulation(config(max_num_batched_tokens=2))
    sim.add(*(request(name, 2) for name in "abcd"))
    while sim.scheduler.has_unfinished:
        assert sim.step().num_tokens <= 2
        assert sim.scheduler.num_running <= 2
    sim.check_answers()


def test_higher_priority_is_admitted_first() -> None:
    sim = Simulation(config(max_num_seqs=1))
    sim.add(request("low", 3, priority=-1), request("mid", 3), request("high", 3, priority=1))
    sim.drain()
    assert list(sim.ended) == ["high", "mid", "low"]


def test_the_block_table_is_the_same_object_until_a_block_is_added() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5, 10))
    tables = [sim.step().sequences[0].block_table for _ in range(5)]
    assert tables[0] is tables[1] is tables[3]
    assert tables[4] is not tables[3]
    assert tables[4][:2] == tables[3]


def test_retire_wants_the_scheduled_batch_and_all_of_its_tokens() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5))
    batch = sim.scheduler.schedule()
    with pytest.raises(EngineError, match="step 1 has not been retired"):
        sim.scheduler.schedule()
    with pytest.raises(EngineError, match="step 1 has no token for 'a'"):
        sim.scheduler.retire(batch, [])
    with pytest.raises(EngineError, match="step 7 is not the one"):
        sim.scheduler.retire(Batch(7, batch.sequences), [SampledToken("a", 1)])
    assert give(sim, batch) == ["a"]
    with pytest.raises(EngineError, match="step 1 is not the one"):
        sim.scheduler.retire(batch, [SampledToken("a", 1)])


def test_retire_returns_what_changed_in_the_order_of_the_batch() -> None:
    sim = Simulation(config(max_num_batched_tokens=12))
    sim.add(request("a", 3, 1, priority=1), request("b", 3), request("c", 10))
    batch = sim.scheduler.schedule()
    assert give(sim, batch) == ["a", "b"]  # the prompt of c is not complete
    batch = sim.scheduler.schedule()
    assert give(sim, batch) == ["b", "c"]


def test_counts() -> None:
    sim = Simulation(config())
    sim.add(request("a", 6, 3))
    sim.step()
    stats = sim.scheduler.stats
    assert (stats.steps, stats.prompt_tokens, stats.generated_tokens) == (1, 6, 1)
    assert (stats.blocks_used, stats.blocks_cached, stats.blocks_total) == (2, 0, 64)
    sim.drain()
    stats = sim.scheduler.stats
    assert (stats.steps, stats.generated_tokens) == (3, 3)
    assert (stats.blocks_used, stats.blocks_cached) == (0, 2)  # 6 + 2 tokens have KV


# ---- abort ----------------------------------------------------------------------------------


def test_abort_of_unknown_waiting_and_running_requests() -> None:
    sim = Simulation(config(max_num_seqs=1))
    sim.add(request("a", 3), request("b", 3))
    sim.step()
    assert sim.scheduler.abort("c") is None
    for name in "ab":
        aborted = sim.scheduler.abort(name)
        assert aborted is not None
        assert aborted.finish_reason is FinishReason.ABORT
    assert not sim.scheduler.has_unfinished
    assert (sim.scheduler.num_running, sim.scheduler.num_waiting) == (0, 0)
    sim.check_no_block_is_lost()


def test_blocks_of_a_running_step_are_kept_until_it_retires() -> None:
    sim = Simulation(config(enable_prefix_caching=False))
    sim.add(request("a", 8), request("b", 8))
    batch = sim.scheduler.schedule()
    sim.scheduler.abort("a")
    sim.scheduler.check_invariants()
    assert sim.scheduler.stats.blocks_used == 4
    assert ids(sim.retire(batch)) == ["b"]
    assert sim.scheduler.stats.blocks_used == 2


def test_an_id_can_come_back_while_its_aborted_step_runs() -> None:
    sim = Simulation(config())
    sim.add(request("a", 8))
    batch = sim.scheduler.schedule()
    sampled = sim.device.execute(batch)
    sim.scheduler.abort("a")
    sim.add(request("a", (1, 2, 3), 5))
    assert sim.scheduler.retire(batch, sampled) == []
    sim.drain()
    sim.check_answers()


# ---- preemption -----------------------------------------------------------------------------


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


# ---- sharing --------------------------------------------------------------------------------

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


# ---- the rest -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda s: s._running.reverse(), "order of their rank"),
        (lambda s: s._running.pop(), "but 0 tables name it"),
        (lambda s: s._sequences.pop("a"), r"\['a', 'b'\] run or wait, but \['b'\]"),
        (lambda s: setattr(s, "config", config(max_num_seqs=1)), "2 sequences run"),
        (lambda s: setattr(s._running[0], "status", SequenceStatus.WAITING), "'a' runs, but is"),
        (lambda s: setattr(s._running[0], "num_computed_tokens", 3), "which it does not own"),
        (lambda s: setattr(s._running[0], "num_computed_tokens", 13), "3 blocks for"),
        (lambda s: setattr(s._running[0], "prompt_token_ids", (0,) * 9), "of another prefix"),
        (lambda s: setattr(s._running[0], "prefix_depth", 1), "wrong depth|does not hold"),
    ],
)
def test_a_wrong_state_is_found(break_it, message: str) -> None:  # type: ignore[no-untyped-def]
    sim = Simulation(config())
    sim.add(request("a", 9), request("b", 9))
    sim.step()
    break_it(sim.scheduler)
    with pytest.raises(InvariantError, match=message):
        sim.scheduler.check_invariants()


def test_the_scheduler_needs_no_torch() -> None:
    code = "import engine.scheduler, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_undisturbed_run_is_no_constant() -> None:
    answers = {tuple(undisturbed(request(f"r{i}", 5, 6), config())) for i in range(20)}
    assert len(answers) > 15
