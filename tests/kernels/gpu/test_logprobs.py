"""Greedy tokens and log probabilities of the GPU against their references, in the interpreter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernels.gpu import logprobs as module
from kernels.gpu.greedy import greedy_tokens
from kernels.gpu.logprobs import token_logprobs
from kernels.greedy import NO_TOKEN, greedy_tokens_reference
from kernels.logprobs import token_logprobs_reference

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# A difference of logits may be minus infinity, or NaN where they are not finite: numpy warns.
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab_size", [1, 7, 1000, 20_000])
def test_greedy_tokens_are_those_of_the_reference(dtype: torch.dtype, vocab_size: int) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(7, vocab_size) * 3).to(dtype)
    logits[1] = logits[1].round()  # ties
    logits[2] = 0.5
    logits[3, vocab_size // 2] = torch.nan
    logits[4, -1] = torch.inf
    logits[5, 0] = -torch.inf

    tokens = greedy_tokens(logits)

    assert torch.equal(tokens, greedy_tokens_reference(logits))
    assert tokens.tolist()[2:6] == [0, NO_TOKEN, NO_TOKEN, NO_TOKEN]


def test_greedy_tokens_are_those_of_rows_within_a_larger_matrix() -> None:
    logits = torch.randn(4, 90)
    assert torch.equal(greedy_tokens(logits[:, 10:60]), logits[:, 10:60].argmax(-1))
    assert greedy_tokens(logits[:0]).shape == (0,)


def check(logits: torch.Tensor, tokens: torch.Tensor, k: int) -> None:
    logprobs, ids = token_logprobs(logits, tokens, k)
    expected = token_logprobs_reference(logits, tokens, k)
    assert torch.equal(ids[:, 0], tokens)
    assert torch.equal(ids[:, 1:], expected.top_ids)
    torch.testing.assert_close(logprobs[:, 0], expected.chosen, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(logprobs[:, 1:], expected.top, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab_size", [1, 7, 1000, 9000])
@pytest.mark.parametrize("k", [0, 1, 20])
def test_log_probabilities_are_those_of_the_reference(
    dtype: torch.dtype, vocab_size: int, k: int
) -> None:
    torch.manual_seed(1)
    spreads = torch.tensor([[0.01], [3.0], [1000.0]])
    check((torch.randn(3, vocab_size) * spreads).to(dtype), torch.randint(vocab_size, (3,)), k)


@pytest.mark.parametrize("candidates", [16, 1024])
def test_of_equal_tokens_the_lowest_id_comes_first(
    candidates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few candidates they often do not suffice; with small blocks there are many."""
    monkeypatch.setattr(module, "BLOCK_SIZE", 32)
    monkeypatch.setattr(module, "CANDIDATES", candidates)
    numbers = [-1e38, -2.5, -1e-45, -0.0, 0.0, 1e-45, 0.5, 0.5000001, 7.0, 1e38]

    # To shrink an example takes long here.
    @settings(deadline=None, max_examples=40, phases=[Phase.generate])
    @given(
        st.integers(1, 3), st.integers(1, 150), st.integers(0, 45),
        st.lists(st.sampled_from(numbers), min_size=1, max_size=6), st.integers(0, 1000),
    )  # fmt: skip
    def run(rows: int, vocab_size: int, k: int, values: list[float], seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        picks = torch.randint(0, len(values), (rows, vocab_size), generator=generator)
        tokens = torch.randint(0, vocab_size, (rows,), generator=generator)
        check(torch.tensor(values)[picks], tokens, k)

    run()


def test_a_row_has_the_same_bits_alone_and_beside_rows_that_are_not_finite() -> None:
    torch.manual_seed(2)
    logits = torch.randn(6, 300)
    tokens = torch.tensor([5, -1, 299, 3, 4, 7])
    logits[3], logits[4, 7] = torch.nan, torch.inf

    logprobs, ids = token_logprobs(logits, tokens, 5)

    assert ids.min() >= 0
    assert ids.max() < 300
    for i in (0, 2, 5):
        alone = token_logprobs(logits[i : i + 1], tokens[i : i + 1], 5)
        assert torch.equal(alone[0], logprobs[i : i + 1])
        assert torch.equal(alone[1], ids[i : i + 1])
