"""Philox against the known answers that its authors publish with Random123."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.philox import philox_4x32, philox_uniform

pytestmark = pytest.mark.quick

# Random123, kat_vectors, "philox4x32 10": counter, key, answer.
KNOWN_ANSWERS = [
    (
        (0x00000000, 0x00000000, 0x00000000, 0x00000000),
        (0x00000000, 0x00000000),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def test_known_answers_in_one_call() -> None:
    counters, keys, answers = (torch.tensor(column) for column in zip(*KNOWN_ANSWERS, strict=True))
    assert torch.equal(philox_4x32(counters, keys), answers)


def uniform(seed: int, position: int, sample_index: int) -> float:
    return philox_uniform(*(torch.tensor([x]) for x in (seed, position, sample_index))).item()


def test_each_of_seed_position_and_sample_changes_the_number() -> None:
    base = (3, 5, 7)
    numbers = {uniform(*base)}
    for changed in [(4, 5, 7), (3 + 2**32, 5, 7), (2**63 - 1, 5, 7), (3, 6, 7), (3, 5, 8)]:
        numbers.add(uniform(*changed))
    assert len(numbers) == 6


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**31)), min_size=1))
def test_a_number_does_not_depend_on_the_batch(rows: list[tuple[int, int]]) -> None:
    seeds, positions = (torch.tensor(column) for column in zip(*rows, strict=True))
    together = philox_uniform(seeds, positions, torch.zeros_like(seeds))
    alone = [uniform(seed, position, 0) for seed, position in rows]
    assert together.tolist() == alone
    assert all(0 <= x < 1 for x in alone)


def test_numbers_are_uniform() -> None:
    positions = torch.arange(100_000)
    numbers = philox_uniform(torch.full_like(positions, 11), positions, positions * 0)
    observed = torch.histc(numbers, bins=100, min=0, max=1)
    chi_square = ((observed - 1000).square() / 1000).sum().item()
    assert 60 < chi_square < 149  # 99 degrees of freedom: 0.1% on either side
