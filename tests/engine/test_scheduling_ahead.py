"""A step that is planned while the one before is in flight: the scheduler on a fake device."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import settings
from hypothesis.stateful import precondition, rule

from engine.batch import PENDING, Batch
from engine.errors import EngineError, RequestError
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.engine.test_scheduler_properties import SchedulerMachine
from tests.support.fake_device import Simulation, config, ids


def request(name: str, prompt: int, max_tokens: int = 20, **params: object) -> Request:
    rules = SamplingParams(**{"max_tokens": max_tokens, "ignore_eos": True, **params})  # type: ignore[arg-type]
    first = 100 * ord(name[0])  # nothing is shared
    return Request(name, tuple(range(first, first + prompt)), rules)


def drain_overlapped(sim: Simulation, max_steps: int = 20_000) -> int:
    """Run until nothing is left, always a step ahead; returns the steps planned ahead."""
    flying: list[Batch] = []
    ahead = 0
    for _ in range(max_steps):
        if not flying:
            batch = sim.scheduler.schedule()
            if not batch:
                assert not sim.scheduler.has_unfinished
                return ahead
            flying.append(batch)
        batch = sim.scheduler.schedule_ahead()
        if batch:
            flying.append(batch)
            ahead += 1
        if sim.check_every_step:
            sim.scheduler.check_invariants()
        sim.retire(flying.pop(0))
    raise AssertionError(f"requests are left after {max_steps} steps")


def test_the_token_of_the_step_in_flight_is_left_to_the_device() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5))
    first = sim.scheduler.schedule()
    ahead = sim.scheduler.schedule_ahead()
    (planned,) = ahead.sequences
    assert planned.token_ids == (PENDING,)
    assert (planned.start, planned.end, planned.samples) == (5, 6, True)
    with pytest.raises(EngineError, match="2 steps are in flight"):
        sim.scheduler.schedule_ahead()
    with pytest.raises(EngineError, match="step 2 is not the one to retire now"):
        sim.scheduler.retire(ahead, [])
    sim.retire(first)
    sim.retire(ahead)
    assert len(sim.scheduler.running_sequences[0].output_token_ids) == 2
    with pytest.raises(EngineError, match="0 steps are in flight"):
        sim.scheduler.schedule_ahead()


def test_chunks_of_a_prompt_follow_one_another() -> None:
    sim = Simulation(config(max_num_batched_tokens=4))
    sim.add(request("a", 10))
    first, ahead = sim.scheduler.schedule(), sim.scheduler.schedule_ahead()
    assert [s.start for b in (first, ahead) for s in b.sequences] == [0, 4]
    sim.retire(first)
    last = sim.scheduler.schedule_ahead()
    assert [(s.start, s.end, s.samples) for s in last.sequences] == [(8, 10, True)]


def test_a_row_that_ends_by_its_length_is_not_planned_again() -> None:
    sim = Simulation(config())
    sim.add(request("short", 5, 1), request("long", 6))
    first, ahead = sim.scheduler.schedule(), sim.scheduler.schedule_ahead()
    assert sorted(ids(first.sequences)) == ["long", "short"]
    assert ids(ahead.sequences) == ["long"]


def test_a_late_stop_costs_one_token_that_is_discarded() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5), request("b", 9))
    first, ahead = sim.scheduler.schedule(), sim.scheduler.schedule_ahead()
    sim.retire(first)
    sim.scheduler.finish("a", FinishReason.STOP)
    used = sim.scheduler.stats.blocks_used
    assert [s.request_id for s in sim.retire(ahead)] == ["b"]
    assert sim.scheduler.stats.blocks_used < used  # only now, as that step wrote to them
    assert sim.scheduler.stats.late_tokens == 1
    drain_overlapped(sim)
    sim.check_no_block_is_lost()
    assert sim.scheduler.stats.late_tokens == 1  # the other one ended by its length


def test_blocks_of_a_row_that_stops_are_kept_until_no_step_writes_to_them() -> None:
    sim = Simulation(config(enable_prefix_caching=False))
    sim.add(request("a", 5, stop_token_ids=tuple(range(7))), request("b", 9, 1))
    first, ahead = sim.scheduler.schedule(), sim.scheduler.schedule_ahead()
    assert ids(ahead.sequences) == ["a"]
    sim.retire(first)
    assert not sim.scheduler.has_unfinished
    assert sim.scheduler.stats.blocks_used == 2  # those of a: no step writes to b's any more
    sim.retire(ahead)
    sim.check_no_block_is_lost()
    assert sim.scheduler.stats.late_tokens == 1


def test_rows_that_need_the_host_skip_a_step_and_most_of_them_stop_the_planning() -> None:
    grammar = {"grammar": ("regex", "a+")}
    sim = Simulation(config())
    sim.add(request("g", 5, **grammar), request("a", 6), request("b", 7))
    first, ahead = sim.scheduler.schedule(), sim.scheduler.schedule_ahead()
    assert sorted(ids(ahead.sequences)) == ["a", "b"]
    sim.retire(first)
    assert sorted(ids(sim.scheduler.schedule_ahead().sequences)) == ["a", "b", "g"]
    sim = Simulation(config())
    sim.add(request("g", 5, **grammar), request("h", 6, **grammar), request("a", 7))
    assert sim.scheduler.schedule()
    assert not sim.scheduler.schedule_ahead()


def test_nobody_is_preempted_for_a_step_ahead() -> None:
    sim = Simulation(config(num_blocks=6, watermark=0.0, reserve_growth=False))
    sim.add(request("a", 8, 9), request("b", 8, 9))
    batch = sim.scheduler.schedule()
    while ahead := sim.scheduler.schedule_ahead():
        assert len(ahead.sequences) == 2
        sim.retire(batch)
        batch = ahead
    assert sim.scheduler.stats.preemptions == 0
    sim.retire(batch)  # both have twelve tokens in three blocks each
    batch = sim.scheduler.schedule()
    assert len(batch.sequences) == sim.scheduler.stats.preemptions == 1
    sim.retire(batch)
    drain_overlapped(sim)
    sim.check_answers()
    sim.check_no_block_is_lost()


class OverlappedMachine(SchedulerMachine):
    """The same histories, with up to two steps in flight."""

    ahead: Batch | None = None

    @precondition(lambda self: bool(self.batch) and self.ahead is None)
    @rule()
    def schedule_ahead(self) -> None:
        scheduler = self.sim.scheduler
        before, preemptions = set(scheduler.running_sequences), scheduler.stats.preemptions
        batch = scheduler.schedule_ahead()
        assert scheduler.stats.preemptions == preemptions
        self.admitted = self.admitted or not set(scheduler.running_sequences) <= before
        assert batch.num_tokens <= self.sim.config.max_num_batched_tokens
        if batch:
            self.ahead = batch

    @precondition(lambda self: self.batch is not None)
    @rule()
    def retire(self) -> None:
        assert self.batch is not None
        self.sim.retire(self.batch)
        self.batch, self.ahead = self.ahead, None

    def teardown(self) -> None:
        if hasattr(self, "sim"):
            while self.batch is not None:
                OverlappedMachine.retire(self)
        super().teardown()


OverlappedMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
TestOverlapped = OverlappedMachine.TestCase


@pytest.mark.parametrize("caching", [True, False])
def test_hundreds_of_requests_have_the_answers_of_an_undisturbed_run(caching: bool) -> None:
    source = random.Random(11)
    families = [tuple(source.randrange(1, 9) for _ in range(40)) for _ in range(12)]
    sim = Simulation(
        config(
            num_blocks=40,
            max_num_seqs=16,
            max_num_batched_tokens=48,
            max_model_len=96,
            enable_prefix_caching=caching,
            reserve_growth=False,
            swap_blocks=10,
        )
    )
    sim.check_every_step = False
    for number in range(600):
        prefix = families[min(source.randrange(12), source.randrange(12))]
        tail = tuple(source.randrange(1, 9) for _ in range(source.randrange(1, 12)))
        limit = SamplingParams(max_tokens=source.randrange(1, 40), ignore_eos=source.random() < 0.3)
        sim.add(Request(f"r{number}", prefix + tail, limit, priority=source.choice((0, 0, 0, 1))))
        if source.random() < 0.02:
            sim.device.poison.add(f"r{number}")
    ahead = drain_overlapped(sim)
    stats = sim.scheduler.stats
    assert stats.steps / 2 < ahead < stats.steps, "most steps are planned ahead, not all"
    assert stats.preemptions > 10, "the pool should be too small, to be a trial"
    sim.check_answers()
    sim.check_no_block_is_lost()


def small_world(seed: int, *, caching: bool) -> Simulation:
    """Rows, samples and beams in a pool that is too small for them."""
    source = random.Random(seed)
    sim = Simulation(
        config(
            num_blocks=source.randrange(9, 16),
            block_size=source.choice((2, 4)),
            max_num_seqs=6,
            max_num_batched_tokens=source.choice((4, 16)),
            max_model_len=18,
            enable_prefix_caching=caching,
            reserve_growth=False,
            watermark=0.0,
            swap_blocks=source.choice((0, 20)),
        )
    )
    for number in range(8):
        prompt = tuple(source.randrange(1, 3) for _ in range(source.randrange(1, 8)))
        params = SamplingParams(
            source.randrange(2, 10), ignore_eos=True, num_beams=source.choice((1, 1, 1, 2))
        )
        priority, name = source.choice((0, 0, 1)), f"r{number}"
        if params.num_beams == 1 and source.random() < 0.5:
            sim.add(
                *(
                    Request(f"{name}.{i}", prompt, params, priority, i, sample_of=name)
                    for i in range(3)
                )
            )
            continue
        with contextlib.suppress(RequestError):  # a pool that even one search does not fit into
            sim.add(Request(name, prompt, params, priority))
    return sim


@pytest.mark.parametrize("overlapped", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("caching", [False, True], ids=["no cache", "cache"])
def test_small_worlds_full_of_preemptions(caching: bool, overlapped: bool) -> None:
    preemptions = swaps = 0
    for seed in range(400):
        sim = small_world(seed, caching=caching)
        if overlapped:
            drain_overlapped(sim)
        else:
            sim.drain()
        sim.check_answers()
        sim.check_no_block_is_lost()
        preemptions += sim.scheduler.stats.preemptions
        swaps += sim.scheduler.stats.swap_ins
    assert preemptions > 100
    assert swaps > 10
