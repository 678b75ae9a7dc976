"""Random loads on pools that are far too small come to an end, in a bounded number of steps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.swap_cost import SwapCost
from tests.support.fake_device import Simulation, config

SHARED = tuple(range(50, 70))


@st.composite
def loads(draw: st.DrawFn) -> Simulation:
    """Requests, one of which may need the whole pool, that come at once or one after the other."""
    block_size = draw(st.sampled_from([1, 2, 4]))
    num_blocks = draw(st.integers(3, 12))
    capacity = num_blocks * block_size
    sim = Simulation(
        config(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=draw(st.integers(1, 6)),
            max_num_batched_tokens=draw(st.integers(1, 16)),
            max_model_len=capacity + 1,
            enable_prefix_caching=draw(st.booleans()),
            reserve_growth=draw(st.booleans()),
            watermark=draw(st.sampled_from([0.0, 0.01, 0.5, 0.99])),
            swap_blocks=draw(st.sampled_from([0, 2, 50])),
        ),
        SwapCost(draw(st.sampled_from([0.0, 1.0]))),
    )
    sim.scheduler._swap._cost.observe(1, 0.3)  # 3 tokens and a block are about equal
    for number in range(draw(st.integers(1, 8))):
        whole = draw(st.booleans())
        length = draw(st.integers(1, capacity - 1 if whole else min(capacity - 1, 8)))
        answer = capacity + 1 - length if whole else draw(st.integers(1, capacity + 1 - length))
        prompt = SHARED[:length] if draw(st.booleans()) else (number,) * length
        prompt += (number,) * (length - len(prompt))
        params = SamplingParams(answer, ignore_eos=True, stop_token_ids=(99,))
        sim.add(Request(f"r{number}", prompt, params, draw(st.integers(-1, 1))))
        for _ in range(draw(st.integers(0, 3))):
            sim.step()
    return sim


def most_steps(sim: Simulation) -> int:
    """A bound from the work alone: as if each token cost a whole prompt and all that came before.

    Between two steps that give a token there are at most those in which all that runs computes
    its tokens again, `budget` at a time, for each sequence that is there.
    """
    requests = sim.requests.values()
    given = sum(r.params.max_tokens for r in requests)
    longest = max(len(r.token_ids) + r.params.max_tokens for r in requests)
    again = -(-longest // sim.config.max_num_batched_tokens) + 1
    return (given + 1) * again * len(requests)


@settings(max_examples=300, deadline=None)
@given(sim=loads())
def test_all_requests_are_answered(sim: Simulation) -> None:
    sim.drain(most_steps(sim))
    assert sim.ended.keys() == sim.requests.keys()
    sim.check_answers()
    sim.check_no_block_is_lost()


def test_one_that_needs_the_whole_pool_takes_turns_with_many_small_ones() -> None:
    sim = Simulation(config(num_blocks=10, swap_blocks=40, max_num_batched_tokens=16))
    small = SamplingParams(6, ignore_eos=True, stop_token_ids=(99,))
    whole = SamplingParams(11, ignore_eos=True, stop_token_ids=(99,))
    sim.add(Request("huge", tuple(range(30)), whole))
    sim.add(*(Request(f"r{i}", (i,) * 8, small) for i in range(40)))
    sim.drain(most_steps(sim))
    sim.check_answers()
    sim.check_no_block_is_lost()
    # Every step gave a token to somebody, or computed part of a prompt.
    assert sim.scheduler.stats.steps <= 11 + 40 * 6 + sim.device.computed_tokens // 16
