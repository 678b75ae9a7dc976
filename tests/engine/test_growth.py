"""The look ahead to the fullest moment, against a count of every step."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.beam_group import BeamGroup
from engine.blocks import BlockPool
from engine.growth import Growth
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence

pytestmark = pytest.mark.quick


def sequence(
    prompt: int, answer: int, width: int = 1, *, running: bool, block_size: int, **params: int
) -> Sequence:
    rules = SamplingParams(max_tokens=answer, num_beams=width, **params)  # type: ignore[arg-type]
    made = (Sequence if width == 1 else BeamGroup)(
        Request("r", tuple(range(prompt)), rules),
        0,
        pool=BlockPool(100),
        root=None,
        max_output_tokens=answer,
        stop_token_ids=frozenset(() if params.get("ignore_eos") else (0,)),
    )
    if running:
        made.block_table.grow(-(-prompt // block_size))
    return made


def counted(rows: list[tuple[int, int, int]], block_size: int) -> int:
    """Most blocks beyond the present ones, by walking through the steps until the last end."""
    most = 0
    for step in range(1, 1 + max(answer for _, answer, _ in rows)):
        now = 0
        for prompt, answer, width in rows:
            held = -(-prompt // block_size)
            if answer < step:
                now -= held
            elif step > 1:  # from the second on, beams write for themselves
                shared = prompt // block_size
                own = -(-(prompt + step - 1) // block_size) - shared
                now += shared + width * own - held
        most = max(most, now)
    return most


@given(
    rows=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 60), st.sampled_from([1, 1, 2, 5])),
        min_size=1,
        max_size=12,
    ),
    block_size=st.sampled_from([1, 4, 16]),
)
@example(rows=[(2, 1, 5)], block_size=4)
def test_the_fullest_moment_is_found_to_half_a_block_a_sequence(
    rows: list[tuple[int, int, int]], block_size: int
) -> None:
    made = [
        sequence(*row, running=number > 0, block_size=block_size, ignore_eos=True)
        for number, row in enumerate(rows)
    ]
    growth = Growth(made[1:], block_size)
    expected = counted(rows, block_size)
    places = sum(width for _, _, width in rows)
    assert abs(growth.reserve_for(made[0], 0) - expected) <= places / 2 + 1
    assert growth.reserve_for(made[0], 10_000) >= expected


def test_an_answer_that_may_end_early_counts_for_nothing() -> None:
    open_end = sequence(8, 400, running=False, block_size=4)
    assert Growth([open_end], 4).reserve_for(open_end, 0) == 0
