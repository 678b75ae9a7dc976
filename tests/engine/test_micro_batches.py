"""Memory that runs out in a step: it goes on in pieces, and answers are those of a calm run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine import micro_batches
from engine.batch import Batch, SampledToken
from engine.blocks import BlockCopy
from engine.config import EngineConfig
from engine.core import Engine
from engine.micro_batches import FIRST_PROBE, LAST_PROBE, MicroBatches, StepSize, is_out_of_memory
from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams
from tests.support.fake_device import Simulation, config

quick = pytest.mark.quick

SHARED = tuple(b"A beginning that several of the prompts have, longer than two blocks. ")
FAULTS = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to …"),
    MemoryError(),
)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(micro_batches, "_wait", waited.append)
    return waited


def requests() -> list[Request]:
    """Prompts that are cut into chunks, that share blocks, samples of one prompt, stop strings."""
    greedy = SamplingParams(9, ignore_eos=True)
    hot = SamplingParams(7, temperature=1.0, seed=4, ignore_eos=True, logprobs=2)
    return [
        *(Request(f"greedy {n}", SHARED + tuple(range(n)), greedy) for n in (1, 3, 40, 90)),
        *(Request(f"sample {i}", SHARED, hot, sample_index=i) for i in range(3)),
        Request("long", tuple(n % 200 for n in range(300)), replace(greedy, max_tokens=30), 1),
        *(Request(f"short {n}", (n,), greedy) for n in range(6)),
    ]


def engine_of(folder: Path) -> Engine:
    return Engine(
        EngineConfig(
            str(folder), num_blocks=40, max_model_len=400, max_num_seqs=8,
            max_num_batched_tokens=128, check_invariants=True, threads=1,
        )
    )  # fmt: skip


def shape(output: RequestOutput) -> tuple[object, ...]:
    return (output.token_ids, output.text, output.finish_reason, output.prompt_tokens)


@pytest.fixture(scope="module")
def calm(folder: Path) -> dict[str, tuple[object, ...]]:
    return {o.request_id: shape(o) for o in engine_of(folder).generate(requests())}


def limit_memory(engine: Engine, fits: Callable[[Batch], bool], fault: Exception) -> list[int]:
    """Let steps that do not fit leave garbage where they write, and fail; returns their sizes."""
    execute, failed = engine.runner.execute, []

    def limited(batch: Batch) -> list[SampledToken]:
        if fits(batch):
            return execute(batch)
        failed.append(batch.num_tokens)
        garbage = (s._replace(token_ids=(255,) * len(s.token_ids)) for s in batch.sequences)
        execute(replace(batch, sequences=tuple(garbage)))
        raise fault

    engine.runner.execute = limited  # type: ignore[method-assign]
    return failed


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("tokens", [1, 7, 60])
def test_answers_are_those_of_a_calm_run(
    folder: Path, calm: dict[str, tuple[object, ...]], tokens: int, fault: Exception
) -> None:
    engine = engine_of(folder)
    failed = limit_memory(engine, lambda batch: batch.num_tokens <= tokens, fault)
    found = {o.request_id: shape(o) for o in engine.generate(requests())}
    assert found == calm
    assert engine.stats.out_of_memory == len(failed) > 0
    # The steps after it do not begin with what has just failed.
    assert len(failed) < engine.stats.steps / 2
    assert engine.stats.blocks_used == 0


def test_a_sequence_of_which_no_token_fits_is_an_error_and_the_others_go_on(
    folder: Path,
    calm: dict[str, tuple[object, ...]],
    no_waits: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also those that wait for the blocks that it was going to compute."""
    bad = ("greedy 3", "long", "short 2")
    engine = engine_of(folder)

    def fits(batch: Batch) -> bool:
        return not any(
            s.request_id in bad and (s.request_id != "long" or s.end > 310) for s in batch.sequences
        )

    limit_memory(engine, fits, FAULTS[0])
    with caplog.at_level(logging.WARNING, "pagemill.engine"):
        outputs = {o.request_id: o for o in engine.generate(requests())}
    for name, output in outputs.items():
        if name in bad:
            assert (output.finish_reason, output.error_code) == (
                FinishReason.ERROR, "out_of_memory",
            )  # fmt: skip
            assert output.error_message is not None
        else:
            assert shape(output) == calm[name]
    assert outputs["long"].completion_tokens == 11
    assert engine.stats.blocks_used == 0
    events = [r for r in caplog.records if getattr(r, "event", None) == "out_of_memory"]
    assert sum(r.lost for r in events) == 3
    assert len(events) <= 3  # one line a step, however often it was cut
    # Each time for a moment, in case that somebody gives memory back; once a step.
    assert no_waits == [*micro_batches.WAIT_SECONDS] * len(events)


def test_memory_that_comes_back_in_the_wait_costs_no_row(
    folder: Path, calm: dict[str, tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(folder)
    short = [True]
    limit_memory(engine, lambda batch: not short, FAULTS[0])
    monkeypatch.setattr(micro_batches, "_wait", lambda _: short.clear())
    assert {o.request_id: shape(o) for o in engine.generate(requests())} == calm


@quick
def test_another_error_is_not_taken_for_it(folder: Path) -> None:
    engine = engine_of(folder)
    limit_memory(engine, lambda batch: False, RuntimeError("mat1 and mat2 cannot be multiplied"))
    engine.add(requests()[0])
    with pytest.raises(RuntimeError, match="mat1"):
        engine.step()


@quick
def test_what_the_allocator_really_says_is_understood() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert is_out_of_memory(caught.value)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2, 3) @ torch.empty(2, 3)
    assert not is_out_of_memory(caught.value)


@quick
def test_a_kernel_that_finds_no_memory_to_be_loaded_is_understood() -> None:
    """In the words of Triton's driver; torch's own are in the test above."""
    assert is_out_of_memory(RuntimeError("Triton Error [CUDA]: out of memory"))
    assert not is_out_of_memory(RuntimeError("Triton Error [CUDA]: invalid argument"))


def all_at_once(blocks: list[int], copies: Sequence[BlockCopy]) -> None:
    for copy, value in [(copy, blocks[copy.source]) for copy in copies]:
        blocks[copy.target] = value


@quick
@settings(max_examples=100, deadline=None)
@given(order=st.permutations(range(9)), sources=st.lists(st.integers(0, 8), max_size=6),
       faults=st.lists(st.booleans(), max_size=12))  # fmt: skip
@example(order=[1, 0, *range(2, 9)], sources=[0, 2], faults=[True, False])
def test_copies_that_fail_half_done_are_those_of_a_calm_step(
    order: list[int], sources: list[int], faults: list[bool]
) -> None:
    """A block may be read first and given out as a target then, as the pool does it."""
    copies = [
        BlockCopy(source, target)
        for i, (source, target) in enumerate(zip(sources, order, strict=False))
        if source not in order[: i + 1]
    ]
    layers = [list(range(9)), list(range(9))]
    expected = list(range(9))
    all_at_once(expected, copies)

    def copy_in_layers(group: tuple[BlockCopy, ...]) -> None:
        for layer in layers:
            if faults and faults.pop():
                raise MemoryError
            all_at_once(layer, group)

    steps = MicroBatches(lambda batch: [], copy_in_layers, 8)
    try:
        steps.execute(Batch(1, (), tuple(copies)))
    except MemoryError:
        assert steps.failures > len(micro_batches.WAIT_SECONDS)
    else:
        assert layers == [expected, expected]


@quick
def test_the_size_is_restored_step_by_step() -> None:
    size = StepSize(100)
    size.halve(100)
    size.halve(50)
    size.step_ended(100, sound=False)
    seen = []
    while size.limit < 100:
        size.step_ended(25, sound=True)  # was not cut, and counts for nothing
        seen.append(size.limit)
        size.step_ended(100, sound=True)
    assert seen == [25] * FIRST_PROBE + [50] * FIRST_PROBE


@quick
def test_a_size_that_was_tried_in_vain_is_tried_less_often() -> None:
    size = StepSize(100)

    def steps_until_tried() -> int:
        size.halve(100)
        size.step_ended(100, sound=False)
        steps = 0
        while size.limit == 50:
            size.step_ended(100, sound=True)
            steps += 1
        return steps

    waits = [steps_until_tried() for _ in range(8)]
    assert waits[:4] == [FIRST_PROBE * factor for factor in (1, 2, 4, 8)]
    assert waits[-2:] == [LAST_PROBE] * 2
    size.step_ended(20, sound=True)  # proves nothing of 100
    assert steps_until_tried() == LAST_PROBE
    size.step_ended(100, sound=True)  # it was a whole step, and memory is there again
    assert steps_until_tried() == FIRST_PROBE


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    limits=st.lists(st.integers(0, 12), max_size=40),
    budget=st.integers(1, 32),
    caching=st.booleans(),
)
def test_whatever_fails_no_token_is_computed_for_a_wrong_place(
    prompts: list[int], limits: list[int], budget: int, caching: bool
) -> None:
    """The fake device checks each read and write, and knows the one right answer."""
    sim = Simulation(
        config(num_blocks=24, max_num_batched_tokens=budget, enable_prefix_caching=caching)
    )
    execute = copy = sim.device.execute
    limits = limits[::-1]

    def limited(batch: Batch) -> list[SampledToken]:
        if limits and batch.num_tokens > limits.pop():
            raise MemoryError
        return execute(batch)

    steps = MicroBatches(limited, lambda copies: copy(Batch(0, (), copies)), budget)
    sim.device.execute = steps.execute  # type: ignore[method-assign]
    for n, length in enumerate(prompts):
        prompt = tuple(1 + i % 5 for i in range(length))
        sim.add(Request(f"r{n}", prompt, SamplingParams(1 + n % 5, ignore_eos=n % 2 == 0)))
    sim.drain()
    lost = {i for i, s in sim.ended.items() if s.error_code == "out_of_memory"}
    for request_id in lost:
        del sim.ended[request_id]
    assert lost | sim.ended.keys() == sim.requests.keys()
    sim.check_answers()
    sim.check_no_block_is_lost()
