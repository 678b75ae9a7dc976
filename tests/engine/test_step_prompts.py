"""Sums of hidden states do not depend on the pieces in which a prompt was computed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.batch import ScheduledSequence
from engine.prompt_work import STATE_UNITS, PromptWork
from engine.sampling_params import SamplingParams
from engine.step_prompts import HiddenRows
from engine.task import Pooling

pytestmark = pytest.mark.quick

TOKENS = tuple(range(60))


def states(seed: int) -> torch.Tensor:
    """[60, 33], of sizes from 1e-7 to 200."""
    generator = torch.Generator().manual_seed(seed)
    sizes = 10 ** (torch.rand(60, 33, generator=generator) * 9.3 - 7)
    return torch.randn(60, 33, generator=generator).clamp(-1, 1) * sizes


def total(hidden: torch.Tensor, cuts: list[int]) -> np.ndarray:
    """The sum over all tokens, computed in pieces that end at the cuts."""
    found = np.zeros(33)
    for start, end in itertools.pairwise(sorted({0, *cuts, 60})):
        sequence = ScheduledSequence(
            "r", TOKENS[start:end], start, (), False, SamplingParams(),
            prompt=PromptWork(TOKENS, start, pooling=Pooling.MEAN),
        )  # fmt: skip
        step = HiddenRows([sequence]).launch(hidden[start:end], torch.neg, 1)
        piece = step.fetch()[0]
        assert piece is not None
        found += np.frombuffer(piece.values)
    return found


@given(cuts=st.lists(st.integers(1, 59), max_size=12), seed=st.integers(0, 99))
def test_a_sum_has_the_same_bits_in_any_pieces(cuts: list[int], seed: int) -> None:
    hidden = states(seed)
    whole = total(hidden, [])
    assert np.array_equal(total(hidden, cuts), whole)
    expected = hidden.double().sum(0).numpy()
    np.testing.assert_allclose(whole / STATE_UNITS, expected, rtol=0, atol=60 / (2 * STATE_UNITS))
