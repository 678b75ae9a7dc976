"""Preempted sequences whose KV is kept in host memory."""

from __future__ import annotations

import math

import pytest

from engine.batch import Batch
from engine.errors import ConfigError, InvariantError
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence
from engine.swap_cost import SwapCost
from tests.support.fake_device import Simulation, config, ids

pytestmark = pytest.mark.quick

OPEN_END = {"stop_token_ids": (99,), "ignore_eos": True}  # it may end early, but never does
PREFIX = tuple(range(100, 112))  # 3 blocks


def request(
    name: str, prompt: tuple[int, ...], max_tokens: int, priority: int = 0, **params: object
) -> Request:
    rules = SamplingParams(max_tokens=max_tokens, **(OPEN_END | params))  # type: ignore[arg-type]
    return Request(name, prompt, rules, priority)


def own(number: int, length: int) -> tuple[int, ...]:
    """A prompt of which no other one has a block."""
    return tuple(number * 1000 + i for i in range(length))


def two_that_do_not_fit(cost: SwapCost | None = None, **changes: object) -> Simulation:
    """Two requests that begin with 2 blocks each and grow to 5, in a pool of 7 blocks."""
    sim = Simulation(config(**{"num_blocks": 7, "swap_blocks": 8, **changes}), cost)
    sim.add(request("a", own(1, 8), 13), request("b", own(2, 8), 13))
    return sim


def run_until(sim: Simulation, count: str, value: int = 1) -> Batch:
    """Step until a count of the scheduler is reached; the step in which it was."""
    while True:
        batch = sim.step()
        assert batch, f"all ended, and {count} is {getattr(sim.scheduler.stats, count)}"
        if getattr(sim.scheduler.stats, count) >= value:
            return batch


def sequence(sim: Simulation, name: str) -> Sequence:
    return sim.scheduler._sequences[name]


def test_a_victim_goes_to_the_host_and_comes_back_without_computing_anything_again() -> None:
    sim = two_that_do_not_fit(enable_prefix_caching=False)
    batch = run_until(sim, "swap_outs")
    swapped = sequence(sim, "b").swapped
    assert swapped is not None
    assert (swapped.first, len(swapped.blocks), swapped.num_tokens) == (0, 3, 12)
    assert [copy.target for copy in batch.swap_out] == list(swapped.blocks)
    stats = sim.scheduler.stats
    assert (stats.swap_blocks_used, stats.swap_blocks_total) == (len(swapped.blocks), 8)
    batch = run_until(sim, "swap_ins")
    assert [copy.source for copy in batch.swap_in] == list(swapped.blocks)
    (back,) = (s for s in batch.sequences if s.request_id == "b")
    assert [copy.target for copy in batch.swap_in] == list(back.block_table[: len(swapped.blocks)])
    assert (back.start, len(back.token_ids), back.samples) == (swapped.num_tokens, 1, True)
    sim.drain()
    sim.check_answers()
    sim.check_no_block_is_lost()
    stats = sim.scheduler.stats
    assert (stats.preemptions, stats.swap_outs, stats.swap_ins) == (1, 1, 1)
    assert sim.device.computed_tokens == 2 * (8 + 12), "nothing was computed twice"


def test_what_the_cache_still_holds_is_not_copied_back() -> None:
    sim = two_that_do_not_fit()
    run_until(sim, "swap_outs")
    swapped = sequence(sim, "b").swapped
    assert swapped is not None
    batch = run_until(sim, "swap_ins")
    (back,) = (s for s in batch.sequences if s.request_id == "b")
    matched = sequence(sim, "b").shared_blocks
    assert 0 < matched < len(swapped.blocks), "its first blocks are to be found in the cache"
    assert [copy.source for copy in batch.swap_in] == list(swapped.blocks[matched:])
    assert back.start == swapped.num_tokens
    sim.drain()
    sim.check_answers()


@pytest.mark.parametrize(
    ("cost", "space"), [(SwapCost(math.inf), 8), (SwapCost(), 0), (SwapCost(), 2)],
    ids=["computing is cheaper", "no swap space", "too little swap space"],
)  # fmt: skip
def test_otherwise_it_is_computed_again(cost: SwapCost, space: int) -> None:
    sim = two_that_do_not_fit(cost, swap_blocks=space, enable_prefix_caching=False)
    run_until(sim, "preemptions")
    assert sequence(sim, "b").swapped is None
    sim.drain()
    sim.check_answers()
    stats = sim.scheduler.stats
    assert (stats.swap_outs, stats.swap_ins, stats.swap_blocks_used) == (0, 0, 0)
    assert sim.device.computed_tokens > 2 * (8 + 12)


def share_a_prefix(**changes: object) -> Simulation:
    """Two requests with three blocks in common that outgrow a pool of 8 blocks."""
    sim = Simulation(config(**{"num_blocks": 8, "swap_blocks": 8, **changes}))
    sim.add(request("a", (*PREFIX, 1), 12), request("b", (*PREFIX, 2), 12))
    return sim


def test_only_blocks_that_a_sequence_alone_holds_are_copied() -> None:
    sim = share_a_prefix()
    run_until(sim, "swap_outs")
    swapped = sequence(sim, "b").swapped
    assert swapped is not None
    assert swapped.first == 3
    assert len(swapped.blocks) == -(-swapped.num_tokens // 4) - 3
    batch = run_until(sim, "swap_ins")
    (back,) = (s for s in batch.sequences if s.request_id == "b")
    assert back.start == swapped.num_tokens, "the shared ones were matched again"
    sim.drain()
    sim.check_answers()
    sim.check_no_block_is_lost()


@pytest.mark.parametrize("budget", [32, 5])
def test_a_shared_prefix_that_was_evicted_is_computed_again_and_the_rest_comes_back(
    budget: int,
) -> None:
    sim = share_a_prefix(max_num_batched_tokens=budget)
    run_until(sim, "swap_outs")
    swapped = sequence(sim, "b").swapped
    assert swapped is not None
    sim.scheduler.abort("a")
    pool = sim.scheduler._blocks.pool
    # Others come and go, and take all that was cached.
    sim.check_every_step = False
    hoard = [pool.allocate() for _ in range(pool.num_available)]
    for block in hoard:
        pool.release(block)
    sim.check_every_step = True
    before = sim.device.computed_tokens
    batch = sim.step()
    (back,) = batch.sequences
    assert (back.start, back.end) == (0, min(budget, 12))
    assert not back.samples
    assert len(batch.swap_in) == len(swapped.blocks)
    while sequence(sim, "b").num_computed_tokens < 12:
        sim.step()
    assert sequence(sim, "b").num_computed_tokens == swapped.num_tokens
    assert sim.device.computed_tokens - before == 12
    sim.drain()
    del sim.requests["a"]
    sim.check_answers()
    sim.check_no_block_is_lost()


def test_swapped_sequences_return_before_those_that_are_computed_again() -> None:
    sim = Simulation(config(num_blocks=12, swap_blocks=4))
    for number, priority in enumerate((1, 0, 0)):
        sim.add(request("abc"[number], own(number, 8), 25, priority))
        sim.step()  # one wave each
    run_until(sim, "preemptions", 2)
    assert sequence(sim, "c").swapped is not None
    assert sequence(sim, "b").swapped is None, "there was no room for it"
    sim.add(request("new", own(9, 4), 2), request("urgent", own(8, 4), 2, priority=2))
    waiting = sim.scheduler._waiting
    assert len(waiting) == 4
    order = []
    while len(waiting):
        order.append(waiting.pop().request_id)
    assert order == ["urgent", "c", "b", "new"]


@pytest.mark.parametrize("how", ["abort", "finish"])
def test_a_swapped_sequence_that_ends_gives_its_host_blocks_back(how: str) -> None:
    sim = two_that_do_not_fit()
    run_until(sim, "swap_outs")
    assert sim.scheduler.stats.swap_blocks_used > 0
    if how == "abort":
        sim.scheduler.abort("b")
    else:
        sim.scheduler.finish("b", FinishReason.ERROR, "row_timeout")
    sim.scheduler.check_invariants()
    assert sim.scheduler.stats.swap_blocks_used == 0
    del sim.requests["b"]
    sim.drain()
    sim.check_answers()
    sim.check_no_block_is_lost()


def test_one_that_is_taken_back_while_its_step_runs_returns_its_blocks_afterwards() -> None:
    sim = two_that_do_not_fit()
    run_until(sim, "swap_outs")
    while sim.scheduler.stats.swap_ins == 0:
        batch = sim.scheduler.schedule()
        if batch.swap_in:
            sim.scheduler.abort("b")
            sim.scheduler.check_invariants()
        sim.retire(batch)
    assert "b" not in sim.scheduler._sequences
    sim.drain()
    sim.check_no_block_is_lost()


def test_nan_that_went_to_the_host_and_back_is_still_found() -> None:
    sim = two_that_do_not_fit()
    run_until(sim, "swap_outs")
    for slots in sim.device._host.values():
        slots[0] = "not a number"
    sim.device.tainted.add("b")
    sim.drain()
    assert sim.ended["b"].error_code == "nan_logits"
    assert sim.ended["a"].error_code is None
    sim.check_answers()
    sim.check_no_block_is_lost()


def test_a_follower_does_not_wait_for_what_it_has_on_the_host() -> None:
    sim = two_that_do_not_fit(enable_prefix_caching=True)
    run_until(sim, "swap_outs")
    b = sequence(sim, "b")
    assert b.swapped is not None
    tree = sim.scheduler._blocks.tree
    assert tree is not None
    # Somebody else is about to compute the very block that b has a copy of.
    other = Sequence(
        Request("other", b.tokens(0, 8), SamplingParams()), 99, pool=sim.scheduler._blocks.pool,
        root=tree.root, max_output_tokens=1, stop_token_ids=frozenset(),
    )  # fmt: skip
    known = tree.root.children.get(b.tokens(0, 4))
    if known is not None:
        tree.remove(known)
    chain = tree.reserve(tree.root, [b.tokens(0, 4)])
    assert sim.scheduler._blocks.look_up(other) is chain[0]
    assert sim.scheduler._blocks.look_up(b) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"swap_blocks": -1}, "swap_blocks is -1"), ({"watermark": 1.0}, "watermark is 1.0"),
     ({"watermark": -0.1}, "watermark is -0.1")],
)  # fmt: skip
def test_limits_that_cannot_work_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**wrong)


def test_a_running_sequence_that_still_holds_host_blocks_is_found() -> None:
    sim = two_that_do_not_fit()
    run_until(sim, "swap_outs")
    sequence(sim, "a").swapped = sequence(sim, "b").swapped
    with pytest.raises(InvariantError, match="'a' runs, but holds host blocks"):
        sim.scheduler.check_invariants()
    sequence(sim, "a").swapped = None
    sequence(sim, "b").swapped = None
    with pytest.raises(InvariantError, match="were given out"):
        sim.scheduler.check_invariants()


def test_the_watermark_keeps_a_share_of_the_pool_free() -> None:
    sim = Simulation(config(num_blocks=40, watermark=0.5, reserve_growth=False))
    sim.add(*(request(name, own(n, 16), 8) for n, name in enumerate("abcdef")))
    sim.step()
    assert ids(sim.scheduler.running_sequences) == ["a", "b"]  # 4 blocks each; budget 32
    sim.step()
    sim.step()
    assert sim.scheduler.stats.blocks_total - sim.scheduler.stats.blocks_used >= 20
    assert sim.scheduler.num_running < 6
    sim.drain()
    sim.check_answers()


def test_alone_a_sequence_may_go_below_the_watermark() -> None:
    sim = Simulation(config(num_blocks=10, watermark=0.9))
    sim.add(request("a", own(1, 30), 11))
    sim.drain()
    sim.check_answers()
