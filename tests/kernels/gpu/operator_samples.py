"""Small arguments of each operation, for what is asked of operators in general."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.kernels.gpu.attention_case import AttentionCase


def paged_attention() -> tuple[Any, ...]:
    """A long decode, in two tiles whose results are merged, and a chunk."""
    case = AttentionCase.build([(1, 400), (3, 40)])
    return case.arguments(case.plan())


def rms_norm() -> tuple[Any, ...]:
    return torch.randn(3, 8), torch.randn(8), 1e-6


def add_rms_norm() -> tuple[Any, ...]:
    return torch.randn(3, 8), torch.randn(3, 8), torch.randn(8), 1e-6


def gather_rows() -> tuple[Any, ...]:
    return torch.randn(5, 8), torch.tensor([4, 0, 2])


def rope_kv_write() -> tuple[Any, ...]:
    """Two tokens of 3 heads of queries and 2 of keys, one of them stored in int8."""
    keys, values = torch.zeros(2, 2, 8, 2, 16, dtype=torch.int8)
    scales = torch.zeros(2, 2, 8, 2)
    cos, sin = torch.rand(2, 2, 8)
    slots = torch.tensor([9, -1])
    return (
        torch.randn(2, 7 * 16), cos, sin, torch.randn(16), torch.randn(16), 1e-6, keys, values,
        scales[0], scales[1], slots,
    )  # fmt: skip


def _storage() -> tuple[torch.Tensor, torch.Tensor]:
    """Of one layer with scales and 5 blocks."""
    return torch.arange(80, dtype=torch.int32).view(1, 2, 5, 8), torch.rand(1, 2, 5, 4)


def copy_blocks() -> tuple[Any, ...]:
    return *_storage(), torch.tensor([1, 4]), torch.tensor([0, 3])


def read_blocks() -> tuple[Any, ...]:
    return *_storage(), torch.tensor([1, 4]), torch.zeros(2, 24, dtype=torch.int32)


def write_blocks() -> tuple[Any, ...]:
    return *_storage(), torch.tensor([1, 4]), torch.arange(48, dtype=torch.int32).view(2, 24)


def greedy_tokens() -> tuple[Any, ...]:
    return (torch.randn(3, 40),)


def token_logprobs() -> tuple[Any, ...]:
    return torch.randn(3, 40), torch.tensor([7, 0, 39]), 2


def sample_rows() -> tuple[Any, ...]:
    """Two rows of three, one with top-k and one with top-p and min-p, and padding."""
    rows, seeds, positions = torch.tensor([[2, 0, -1], [3, 4, 5], [6, 7, 8]])
    temperatures, log_min_p = torch.tensor([[0.7, 1.2, 1.0], [-torch.inf, -5.0, -torch.inf]])
    return (
        torch.tensor([5, 6, 7]), torch.randn(3, 40), False, rows, seeds, positions,
        torch.zeros(3).long(), temperatures, torch.tensor([4, 0, 0], dtype=torch.int32),
        torch.tensor([1.0, 0.8, 1.0], dtype=torch.float64), log_min_p,
    )  # fmt: skip


def gelu_and_mul() -> tuple[Any, ...]:
    return torch.randn(3, 16), True


def silu_and_mul() -> tuple[Any, ...]:
    return (torch.randn(3, 16),)


def apply_penalties() -> tuple[Any, ...]:
    """Two of three rows, with counts in two of four slots."""
    generated = torch.randint(0, 3, (4, 40), dtype=torch.int32)
    return (
        torch.randn(3, 40), torch.tensor([2, 0]), generated == 2, generated, torch.tensor([1, 3]),
        *(torch.tensor([[1.2], [0.5]]) for _ in range(3)),
    )  # fmt: skip


def add_token_bias() -> tuple[Any, ...]:
    return torch.randn(3, 40), torch.tensor([2, 0]), torch.randn(4, 40), torch.tensor([1, 3])


def mask_logits() -> tuple[Any, ...]:
    words = torch.tensor([[-7, 3], [12, 80]], dtype=torch.int32)
    return torch.randn(3, 40), torch.tensor([0, 2]), words


# By the name of the operation.
SAMPLES: dict[str, Callable[[], tuple[Any, ...]]] = {
    sample.__name__: sample
    for sample in (
        add_rms_norm,
        add_token_bias,
        apply_penalties,
        copy_blocks,
        gather_rows,
        gelu_and_mul,
        greedy_tokens,
        mask_logits,
        paged_attention,
        read_blocks,
        rms_norm,
        rope_kv_write,
        sample_rows,
        silu_and_mul,
        token_logprobs,
        write_blocks,
    )
}
