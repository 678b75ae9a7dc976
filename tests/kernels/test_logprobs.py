"""Log probabilities against their specification: values, order among ties, odd rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import logprobs as module
from kernels.logprobs import TokenLogprobs, token_logprobs, token_logprobs_reference

pytestmark = pytest.mark.quick


def check(ours: TokenLogprobs, expected: TokenLogprobs) -> None:
    assert torch.equal(ours.top_ids, expected.top_ids)
    torch.testing.assert_close(ours.chosen, expected.chosen, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(ours.top, expected.top, atol=1e-5, rtol=1e-6)


def random_rows(rows: int, vocab_size: int, spread: float, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, vocab_size, generator=generator) * spread
    return logits, torch.randint(0, vocab_size, (rows,), generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k", [0, 1, 20])
@pytest.mark.parametrize("spread", [0.01, 3.0, 1000.0])
def test_it_is_what_the_reference_says(dtype: torch.dtype, k: int, spread: float) -> None:
    logits, tokens = random_rows(9, 3000, spread, seed=1)
    ours = token_logprobs(logits.to(dtype), tokens, k)
    assert (ours.chosen.dtype, ours.top_ids.shape, ours.top.shape) == (
        torch.float32, (9, k), (9, k)
    )  # fmt: skip
    check(ours, token_logprobs_reference(logits.to(dtype), tokens, k))


@settings(deadline=None)
@given(
    rows=st.integers(0, 4),
    vocab_size=st.integers(1, 40),
    k=st.integers(0, 45),
    values=st.lists(
        st.sampled_from([-1e38, -2.5, -1e-45, -0.0, 0.0, 1e-45, 0.5, 0.5000001, 7.0, 1e38]),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 1000),
)
def test_of_equal_tokens_the_lowest_id_comes_first(
    rows: int, vocab_size: int, k: int, values: list[float], seed: int
) -> None:
    picks, tokens = random_rows(rows, vocab_size, 100.0, seed)
    logits = torch.tensor(values)[picks.long() % len(values)]
    expected = token_logprobs_reference(logits, tokens, k)
    check(token_logprobs(logits, tokens, k), expected)
    ids = module._likeliest_by_key(logits, min(k, vocab_size))  # the way of a GPU
    assert torch.equal(ids, expected.top_ids)


def test_the_chosen_token_has_the_value_that_it_has_among_the_best() -> None:
    logits, _ = random_rows(30, 500, 4.0, seed=2)
    ours = token_logprobs(logits, logits.argmax(-1), 5)
    assert torch.equal(ours.chosen, ours.top[:, 0])


def test_probabilities_of_the_whole_vocabulary_sum_to_one() -> None:
    logits, tokens = random_rows(5, 300, 2.0, seed=3)
    ours = token_logprobs(logits + 1e4, tokens, 300)
    torch.testing.assert_close(ours.top.double().exp().sum(-1), torch.ones(5).double())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_or_has_no_token_harms_no_other(bad: float) -> None:
    logits, tokens = random_rows(4, 100, 1.0, seed=4)
    expected = token_logprobs(logits, tokens, 6)
    logits[1, 5] = bad
    tokens[1] = -1
    ours = token_logprobs(logits, tokens, 6)
    others = [0, 2, 3]
    assert torch.equal(ours.chosen[others], expected.chosen[others])
    assert torch.equal(ours.top_ids[others], expected.top_ids[others])
    assert torch.equal(ours.top[others], expected.top[others])
    assert (ours.top_ids >= 0).all()


def test_values_are_finite_at_the_ends_of_float32() -> None:
    logits = torch.tensor([[3e38, -3e38, 0.0]])
    ours = token_logprobs(logits, torch.tensor([1]), 3)
    assert ours.chosen.isfinite().all()
    assert ours.top.isfinite().all()
    assert ours.top_ids.tolist() == [[0, 2, 1]]


def test_the_logits_stay_as_they_are() -> None:
    logits, tokens = random_rows(4, 100, 1.0, seed=5)
    before = logits.clone()
    token_logprobs(logits, tokens, 3)
    assert torch.equal(logits, before)
