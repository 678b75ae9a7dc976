"""The scheduler under arbitrary histories, on a device that notices every wrong read."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from engine.batch import Batch
from engine.errors import RequestError
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.swap_cost import SwapCost
from tests.support.fake_device import Simulation, config

SHARED = ((1, 2, 3, 4, 5, 6, 1, 2), (1, 2, 3, 4, 6, 6, 6, 6), (5, 5, 5, 5, 5))

prompts = st.builds(
    lambda prefix, cut, tail: prefix[:cut] + tuple(tail),
    st.sampled_from(SHARED),
    st.integers(0, 8),
    st.lists(st.integers(1, 3), max_size=4),
).filter(bool)
params = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 12),
    ignore_eos=st.booleans(),
    stop_token_ids=st.sampled_from([(), (3,)]),
    logprobs=st.sampled_from([None, 0]),
)


class Whims(SwapCost):
    """Now this is cheaper and now that, as a number says in its bits."""

    def __init__(self, choices: int) -> None:
        super().__init__()
        self._choices = choices

    def is_lower(self, blocks: int, tokens: int) -> bool:
        assert blocks > 0
        assert tokens > 0
        self._choices = self._choices >> 1 | (self._choices & 1) << 30
        return bool(self._choices & 1)


beam_params = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 8),
    ignore_eos=st.booleans(),
    stop_token_ids=st.sampled_from([(), (3,)]),
    num_beams=st.integers(2, 4),
    length_penalty=st.sampled_from([0.0, 1.0, -0.5, 2.0]),
    early_stopping=st.sampled_from([True, False, "never"]),
)


class SchedulerMachine(RuleBasedStateMachine):
    """Requests come, run, fail and are taken back; between schedule and retire too."""

    known = Bundle("known")

    @initialize(
        num_blocks=st.integers(4, 14),
        block_size=st.sampled_from([1, 2, 4]),
        max_num_seqs=st.integers(1, 5),
        budget=st.integers(1, 12),
        caching=st.booleans(),
        reserve_growth=st.booleans(),
        watermark=st.sampled_from([0.0, 0.01, 0.4]),
        swap_blocks=st.sampled_from([0, 3, 20]),
        swaps=st.integers(1, 1 << 30),
    )
    def start(
        self,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        budget: int,
        caching: bool,
        reserve_growth: bool,
        watermark: float,
        swap_blocks: int,
        swaps: int,
    ) -> None:
        self.sim = Simulation(
            config(
                num_blocks=num_blocks,
                block_size=block_size,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=budget,
                max_model_len=24,
                enable_prefix_caching=caching,
                reserve_growth=reserve_growth,
                watermark=watermark,
                swap_blocks=swap_blocks,
            ),
            Whims(swaps),
        )
        self.batch: Batch | None = None
        self.admitted = False
        self.added = 0

    @rule(
        target=known,
        prompt=prompts,
        params=params,
        priority=st.integers(-1, 1),
        sample_index=st.integers(0, 2),
    )
    def add(
        self, prompt: tuple[int, ...], params: SamplingParams, priority: int, sample_index: int
    ):  # type: ignore[no-untyped-def]
        return self.add_all(Request(f"r{self.added}", prompt, params, priority, sample_index))

    @rule(
        target=known,
        prompt=prompts,
        params=params,
        priority=st.integers(-1, 1),
        count=st.integers(2, 4),
    )
    def add_samples(
        self, prompt: tuple[int, ...], params: SamplingParams, priority: int, count: int
    ):  # type: ignore[no-untyped-def]
        """Samples of one prompt, which is computed once for all of them."""
        name = f"r{self.added}"
        return self.add_all(
            *(
                Request(f"{name}.{i}", prompt, params, priority, i, sample_of=name)
                for i in range(count)
            )
        )

    @rule(target=known, prompt=prompts, params=beam_params, priority=st.integers(-1, 1))
    def add_beams(self, prompt: tuple[int, ...], params: SamplingParams, priority: int):  # type: ignore[no-untyped-def]
        return self.add_all(Request(f"r{self.added}", prompt, params, priority))

    def add_all(self, *requests: Request):  # type: ignore[no-untyped-def]
        self.added += 1
        try:
            self.sim.add(*requests)
        except RequestError as error:
            if error.code not in ("kv_cache_too_small", "too_many_beams"):
                raise
            return multiple()
        return multiple(*(request.request_id for request in requests))

    @precondition(lambda self: self.batch is None)
    @rule()
    def schedule(self) -> None:
        scheduler = self.sim.scheduler
        before, preemptions = set(scheduler.running_sequences), scheduler.stats.preemptions
        self.batch = scheduler.schedule()
        if self.admitted:
            assert scheduler.stats.preemptions == preemptions, "an admission cost a preemption"
        self.admitted = not set(scheduler.running_sequences) <= before
        assert self.batch.num_tokens <= self.sim.config.max_num_batched_tokens
        assert self.batch or not scheduler.has_unfinished
        assert len(self.batch.sequences) <= sum(s.places for s in scheduler.running_sequences)

    @precondition(lambda self: self.batch is not None)
    @rule()
    def retire(self) -> None:
        assert self.batch is not None
        self.sim.retire(self.batch)
        self.batch = None

    @rule(request_id=known)
    def abort(self, request_id: str) -> None:
        scheduler, used = self.sim.scheduler, self.sim.scheduler.stats.blocks_used
        aborted = scheduler.abort(request_id)
        assert (aborted is None) == (request_id in self.sim.ended)
        if aborted is not None:
            assert aborted.finish_reason is FinishReason.ABORT
            self.sim.ended[request_id] = aborted
            self.cut(request_id)
        if self.batch:
            assert scheduler.stats.blocks_used == used, "blocks of a running step were freed"

    @rule(request_id=known)
    def finish(self, request_id: str) -> None:
        if request_id not in self.sim.ended:
            self.sim.scheduler.finish(request_id, FinishReason.STOP)
            self.cut(request_id)

    def cut(self, request_id: str) -> None:
        """Its answer ends early, so it is no longer that of an undisturbed run."""
        self.sim.ended[request_id] = None  # type: ignore[assignment]

    @rule(request_id=known)
    def poison(self, request_id: str) -> None:
        self.sim.device.poison.add(request_id)

    @invariant()
    def books_are_right(self) -> None:
        if hasattr(self, "sim"):
            self.sim.scheduler.check_invariants()

    def teardown(self) -> None:
        if not hasattr(self, "sim"):
            return
        if self.batch is not None:
            self.retire()
        self.sim.drain(max_steps=3_000)
        assert self.sim.ended.keys() == self.sim.requests.keys()
        self.sim.ended = {k: v for k, v in self.sim.ended.items() if v is not None}
        self.sim.check_answers()
        self.sim.check_no_block_is_lost()


SchedulerMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
TestScheduler = SchedulerMachine.TestCase


def replay(count: int, *, caching: bool) -> Simulation:
    """A day in small: requests of a few families arrive while others run."""
    source = random.Random(7)
    families = [tuple(source.randrange(1, 9) for _ in range(40)) for _ in range(12)]
    sim = Simulation(
        config(
            num_blocks=60,
            max_num_seqs=16,
            max_num_batched_tokens=48,
            max_model_len=96,
            enable_prefix_caching=caching,
            reserve_growth=False,  # preemptions are wanted here
        )
    )
    sim.check_every_step = False
    for number in range(count):
        prefix = families[min(source.randrange(12), source.randrange(12))]
        tail = tuple(source.randrange(1, 9) for _ in range(source.randrange(1, 12)))
        limit = SamplingParams(max_tokens=source.randrange(1, 40), ignore_eos=source.random() < 0.3)
        sim.add(Request(f"r{number}", prefix + tail, limit, priority=source.choice((0, 0, 0, 1))))
        if source.random() < 0.02:
            sim.scheduler.abort(f"r{source.randrange(number + 1)}")
        if source.random() < 0.01:
            sim.device.poison.add(f"r{number}")
        while sim.scheduler.num_waiting > 200:
            sim.step()
    sim.drain()
    return sim


def test_thousands_of_requests_have_the_answers_of_an_undisturbed_run() -> None:
    sim = replay(3_000, caching=True)
    assert len(sim.ended) > 2_900
    sim.check_answers()
    sim.check_no_block_is_lost()
    stats = sim.scheduler.stats
    assert stats.preemptions > 50, "the pool should be too small, to be a trial"
    assert stats.cached_tokens > 0.6 * stats.prompt_tokens
    sim.scheduler.check_invariants()


def test_the_same_without_prefix_caching() -> None:
    sim = replay(600, caching=False)
    sim.check_answers()
    sim.check_no_block_is_lost()
    assert sim.scheduler.stats.cached_tokens == 0
