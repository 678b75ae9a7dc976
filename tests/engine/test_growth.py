"""The look ahead to the fullest moment, against a count of every step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.blocks import BlockPool
from engine.growth import Growth
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence

pytestmark = pytest.mark.quick


def sequence(
    prompt: int, answer: int, *, running: bool, block_size: int, **params: int
) -> Sequence:
    made = Sequence(
        Request("r", tuple(range(prompt)), SamplingParams(max_tokens=answer, **params)),  # type: ignore[arg-type]
        0,
        pool=BlockPool(100),
        root=None,
        max_output_tokens=answer,
        stop_token_ids=frozenset(() if params.get("ignore_eos") else (0,)),
    )
    if running:
        made.block_table.grow(-(-prompt // block_size))
    return made


def counted(rows: list[tuple[int, int]], block_size: int) -> int:
    """Most blocks beyond the present ones, by walking through the steps until the last end."""
    most = 0
    for step in range(1, 1 + max(answer for _, answer in rows)):
        now = 0
        for prompt, answer in rows:
            held = -(-prompt // block_size)
            if answer < step:
                now -= held
            else:
                now += -(-(prompt + step - 1) // block_size) - held
        most = max(most, now)
    return most


@given(
    rows=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60)), min_size=1, max_size=12),
    block_size=st.sampled_from([1, 4, 16]),
)
def test_the_fullest_moment_is_found_to_half_a_block_a_sequence(
    rows: list[tuple[int, int]], block_size: int
) -> None:
    made = [
        sequence(*row, running=number > 0, block_size=block_size, ignore_eos=True)
        for number, row in enumerate(rows)
    ]
    growth = Growth(made[1:], block_size)
    expected = counted(rows, block_size)
    assert abs(growth.reserve_for(made[0], 0) - expected) <= len(rows) / 2 + 1
    assert growth.reserve_for(made[0], 10_000) >= expected


def test_an_answer_that_may_end_early_counts_for_nothing() -> None:
    open_end = sequence(8, 400, running=False, block_size=4)
    assert Growth([open_end], 4).reserve_for(open_end, 0) == 0
