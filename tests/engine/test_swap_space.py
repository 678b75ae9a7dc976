"""Host blocks: who has which, and which are given out first."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvariantError, OutOfBlocks
from engine.swap_cost import SwapCost
from engine.swap_space import SwappedBlocks, SwapSpace

pytestmark = pytest.mark.quick


def test_the_lowest_free_blocks_are_given_first() -> None:
    space = SwapSpace(6)
    first, second = space.allocate(2), space.allocate(3)
    assert (first, second) == ((0, 1), (2, 3, 4))
    space.release(second)
    space.release(first)
    assert space.allocate(4) == (0, 1, 2, 3)
    assert (space.num_used, space.num_free) == (4, 2)


def test_too_many_at_once_are_refused_and_change_nothing() -> None:
    space = SwapSpace(3)
    space.allocate(2)
    with pytest.raises(OutOfBlocks, match="2 blocks of swap space wanted, 1 of 3 free"):
        space.allocate(2)
    assert space.allocate(1) == (2,)


@given(moves=st.lists(st.integers(-6, 5), max_size=60), size=st.integers(0, 12))
def test_every_block_is_free_or_has_one_holder(moves: list[int], size: int) -> None:
    """A number of 0 or more takes as many, another one gives back what was taken n-th last."""
    space, held = SwapSpace(size), []
    for move in moves:
        if 0 <= move <= space.num_free:
            held.append(SwappedBlocks(0, space.allocate(move), move))
        elif -len(held) <= move < 0:
            space.release(held.pop(move).blocks)
        assert space.num_used == sum(len(s.blocks) for s in held)
        assert space.num_used + space.num_free == size
        space.check_invariants(held)


def test_a_lost_and_a_doubled_block_are_found() -> None:
    space = SwapSpace(4)
    held = SwappedBlocks(0, space.allocate(2), 8)
    for wrong in ([], [held, held]):
        with pytest.raises(InvariantError, match="of 2 that were given out"):
            space.check_invariants(wrong)


@pytest.mark.parametrize(("index", "holds"), [(2, False), (3, True), (5, True), (6, False)])
def test_which_blocks_of_a_sequence_are_on_the_host(index: int, holds: bool) -> None:
    assert SwappedBlocks(3, (7, 8, 1), 22).holds(index) == holds


def test_the_cheaper_way_is_taken() -> None:
    cost = SwapCost(0.010)
    assert cost.is_lower(1, 1), "before any step nothing is known of computing"
    cost.observe(100, 0.1)  # 1 ms a token
    assert cost.is_lower(2, 21)
    assert not cost.is_lower(2, 20)
    cost.observe(4, 0.1)  # a step of decodes tells less
    assert cost.is_lower(2, 21)
    cost.observe(512, 0.256)  # half a millisecond
    assert not cost.is_lower(2, 40)
    assert cost.is_lower(2, 41)


def test_copies_that_cost_nothing_always_win_and_endless_ones_never() -> None:
    for cost, swaps in ((SwapCost(), True), (SwapCost(math.inf), False)):
        assert cost.is_lower(1, 1) == swaps
        cost.observe(1, 1e-9)
        assert cost.is_lower(1, 1) == swaps
