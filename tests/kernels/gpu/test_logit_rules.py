"""Penalties, biases and masks of the GPU against their references, in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.gpu.logit_rules import add_token_bias, apply_penalties, mask_logits
from kernels.penalties import Penalties, TokenCounts, apply_penalties_reference
from kernels.token_bias import add_token_bias_reference
from kernels.token_mask import mask_logits_reference

pytestmark = pytest.mark.quick

VOCABULARIES = pytest.mark.parametrize("vocab_size", [1, 7, 1000, 4097])


@VOCABULARIES
def test_penalties_are_those_of_the_reference(vocab_size: int) -> None:
    torch.manual_seed(0)
    scores = torch.randn(5, vocab_size) * 5
    scores[3, ::3] = -torch.inf
    counts = TokenCounts.empty(6, vocab_size, torch.device("cpu"))
    counts.in_prompt.copy_(torch.rand(6, vocab_size) < 0.3)
    counts.generated.copy_(torch.randint(-3, 4, (6, vocab_size)).clamp(min=0))
    rows, slots = torch.tensor([3, 0, 4]), torch.tensor([5, 2, 0])
    penalties = Penalties(
        torch.tensor([[1.3], [0.5], [1.0]]),
        torch.tensor([[0.7], [-2.0], [0.0]]),
        torch.tensor([[0.0], [1.5], [-0.3]]),
    )
    ours = scores.clone()

    apply_penalties(
        ours, rows, counts.in_prompt, counts.generated, slots, penalties.repetition,
        penalties.presence, penalties.frequency,
    )  # fmt: skip

    apply_penalties_reference(scores, rows, counts, slots, penalties)
    torch.testing.assert_close(ours, scores, rtol=1e-6, atol=1e-6)


@VOCABULARIES
def test_biases_are_those_of_the_reference(vocab_size: int) -> None:
    torch.manual_seed(1)
    scores, table = torch.randn(5, vocab_size), torch.randn(4, vocab_size)
    table[2, ::2] = -torch.inf
    rows, slots = torch.tensor([4, 1, 2]), torch.tensor([2, 2, 0])
    ours = scores.clone()

    add_token_bias(ours, rows, table, slots)

    add_token_bias_reference(scores, rows, table, slots)
    assert torch.equal(ours, scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@VOCABULARIES
def test_masks_are_those_of_the_reference(dtype: torch.dtype, vocab_size: int) -> None:
    torch.manual_seed(2)
    logits, rows = torch.randn(4, vocab_size).to(dtype), [0, 3]
    # One word more than the vocabulary needs.
    shape = (2, vocab_size // 32 + 2)
    words = np.random.default_rng(3).integers(-(2**31), 2**31, shape).astype(np.int32)
    ours = logits.clone()

    mask_logits(ours, torch.tensor(rows), torch.from_numpy(words))

    mask_logits_reference(logits, rows, words)
    assert torch.equal(ours, logits)
