"""A prefix that many rows share is computed once, even if all of them arrive at the same moment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batch import SampledToken
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler, SchedulerConfig

Prompt = tuple[int, ...]
ANSWER = 0  # no prompt has it, so no answer looks like a prompt
numbers = itertools.count(1)


def fresh(length: int) -> Prompt:
    """Token ids that occur nowhere else."""
    return tuple(next(numbers) for _ in range(length))


def shared(rows: int, prefix: int) -> list[Prompt]:
    """One prefix, and endings of different lengths."""
    head = fresh(prefix)
    return [head + fresh(20 + row * 7 % 40) for row in range(rows)]


def nested() -> list[Prompt]:
    """A system prompt, three sets of examples below it, four documents below each."""
    prompts, system = [], fresh(101)
    for _ in range(3):
        examples = system + fresh(150)
        for _ in range(4):
            document = examples + fresh(93)
            prompts += [document + fresh(5 + question) for question in range(9)]
    return prompts


def interleaved() -> list[Prompt]:
    """Several groups whose rows take turns, with rows between them that share nothing."""
    groups = [shared(40, prefix) for prefix in (70, 333, 430)]
    return [p for row in zip(*groups, strict=True) for p in (*row, fresh(25))]


def distinct_tokens(prompts: Sequence[Prompt], block_size: int) -> tuple[int, int]:
    """Fewest tokens to compute, and the most if only full blocks are shared.

    At the fewest, no token is computed twice after the same ones before it, but the last one of
    each prompt, which every row computes to have its logits. At the most, every row computes the
    1 to `block_size` tokens after the last full block that it could share.
    """
    fewest, before = 0, Prompt()
    for prompt in sorted(prompts):
        pairs = zip(before, prompt, strict=False)
        shared_tokens = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        fewest += max(1, len(prompt) - shared_tokens)
        before = prompt
    nodes: dict[tuple[int, Prompt], int] = {}
    rests = 0
    for prompt in prompts:
        node, depth = 0, (len(prompt) - 1) // block_size
        for start in range(0, depth * block_size, block_size):
            node = nodes.setdefault((node, prompt[start : start + block_size]), len(nodes) + 1)
        rests += len(prompt) - depth * block_size
    return fewest, len(nodes) * block_size + rests


def computed_tokens(prompts: Sequence[Prompt], config: SchedulerConfig, max_tokens: int = 2) -> int:
    """Prompt tokens that all steps together compute when the rows arrive at once."""
    scheduler = Scheduler(config)
    for row, prompt in enumerate(prompts):
        params = SamplingParams(max_tokens=1 + row % max_tokens, ignore_eos=True)
        scheduler.add(Request(str(row), prompt, params))
    computed = 0
    while scheduler.has_unfinished:
        batch = scheduler.schedule()
        assert batch
        for planned in batch.sequences:
            prompt_end = min(planned.end, len(prompts[int(planned.request_id)]))
            computed += max(0, prompt_end - planned.start)
        scheduler.retire(
            batch, [SampledToken(s.request_id, ANSWER) for s in batch.sequences if s.samples]
        )
    return computed


def limits(block_size: int, budget: int, max_num_seqs: int) -> SchedulerConfig:
    return SchedulerConfig(
        num_blocks=20_000,  # nothing has to give way
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=4_096,
        eos_token_ids=frozenset(),
    )


JOBS = {
    "one system prompt": lambda: shared(256, 430),
    "few-shot": lambda: shared(200, 1_203),
    "nested": nested,
    "several groups": interleaved,
    "equal prompts": lambda: [fresh(430)] * 64,
    "equal prompts of whole blocks": lambda: [fresh(416)] * 64,
    "nothing shared": lambda: [fresh(37) for _ in range(64)],
}


# Here every row but the first comes when the block that it shares in part has been proven.
SHARED_TO_THE_TOKEN = ("one system prompt", "few-shot", "nothing shared")


@pytest.mark.parametrize("max_num_seqs", [32, 1_000])
@pytest.mark.parametrize("budget", [96, 512, 8_192])
@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("job", JOBS)
def test_no_shared_token_is_computed_twice(
    job: str, block_size: int, budget: int, max_num_seqs: int
) -> None:
    prompts = JOBS[job]()
    fewest, most = distinct_tokens(prompts, block_size)
    computed = computed_tokens(prompts, limits(block_size, budget, max_num_seqs))
    if job in SHARED_TO_THE_TOKEN:
        assert computed == fewest
    else:
        assert fewest <= computed <= most


@pytest.mark.quick
def test_the_expected_number_counts_shared_tokens_once_and_the_last_one_for_each_row() -> None:
    assert distinct_tokens([(1, 2, 3, 4, 5), (1, 2, 3, 4, 6)], 4) == (6, 6)
    assert distinct_tokens([(1, 2, 3, 4, 5), (1, 2, 3, 9, 5)], 2) == (7, 8)
    assert distinct_tokens([(1, 2), (1, 2)], 2) == (3, 4)
    assert distinct_tokens([(1, 2), (1, 2, 3)], 2) == (3, 5)


prefixes = st.lists(st.integers(1, 2), max_size=30).map(tuple)


@given(
    pool=st.lists(prefixes, min_size=1, max_size=3),
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 30), prefixes), min_size=1, max_size=24
    ),
    block_size=st.sampled_from([1, 2, 3, 8]),
    budget=st.integers(1, 40),
    max_num_seqs=st.integers(1, 30),
    max_tokens=st.integers(1, 9),
)
def test_whatever_rows_share_is_computed_once(
    pool: list[Prompt],
    rows: list[tuple[int, int, Prompt]],
    block_size: int,
    budget: int,
    max_num_seqs: int,
    max_tokens: int,
) -> None:
    prompts = [(*pool[which % len(pool)][:cut], *tail, 3) for which, cut, tail in rows]
    fewest, most = distinct_tokens(prompts, block_size)
    config = limits(block_size, budget, max_num_seqs)
    assert fewest <= computed_tokens(prompts, config, max_tokens) <= most
