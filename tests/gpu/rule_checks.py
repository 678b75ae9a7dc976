"""Penalties, biases and masks of logits against their references on the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.items import Item, Surroundings
from kernels.penalties import (
    Penalties,
    TokenCounts,
    apply_penalties,
    apply_penalties_reference,
)
from kernels.token_bias import add_token_bias, add_token_bias_reference
from kernels.token_mask import mask_logits, mask_logits_reference
from tests.gpu.near import near

GROUP = "rows"
_ROWS, _SLOTS = 9, 12


def items(dry: bool) -> list[Item]:
    found = []
    for vocab in (300,) if dry else (300, 49152, 128256, 151936):
        found += [
            Item(f"penalties of {vocab}", GROUP, partial(_penalties, vocab)),
            Item(f"token biases of {vocab}", GROUP, partial(_bias, vocab)),
        ]
        for name, dtype in {"float32": torch.float32, "bf16": torch.bfloat16}.items():
            found.append(Item(f"mask {name} of {vocab}", GROUP, partial(_mask, vocab, dtype)))
    return found


def _generator(vocab: int) -> torch.Generator:
    return torch.Generator().manual_seed(vocab)


def _penalties(vocab: int, given: Surroundings) -> dict[str, Any]:
    generator = _generator(vocab)
    scores = torch.randn(_ROWS, vocab, generator=generator) * 3
    rows = torch.tensor([7, 0, 3])
    slots = torch.tensor([11, 2, 5])
    in_prompt = torch.rand(_SLOTS, vocab, generator=generator) < 0.1
    generated = torch.randint(-9, 4, (_SLOTS, vocab), generator=generator).clamp(min=0).int()
    asked = [torch.tensor([[a], [b], [1.0]]) for a, b in ((1.3, 0.7), (0.5, -1.0), (0.2, 2.0))]
    device = given.device.torch_device
    found = scores.to(device, copy=True)
    apply_penalties(
        found, rows.to(device), TokenCounts(in_prompt.to(device), generated.to(device)),
        slots.to(device), Penalties(*(x.to(device) for x in asked)),
    )  # fmt: skip
    right = scores.clone()
    counts = TokenCounts(in_prompt, generated)
    apply_penalties_reference(right, rows, counts, slots, Penalties(*asked))
    assert not torch.equal(right, scores)
    return near(found.cpu(), right, 1e-6)


def _bias(vocab: int, given: Surroundings) -> dict[str, Any]:
    """Some tokens are banned."""
    generator = _generator(vocab)
    scores = torch.randn(_ROWS, vocab, generator=generator)
    table = torch.randn(_SLOTS, vocab, generator=generator)
    table[3, ::7] = -torch.inf
    rows, slots = torch.tensor([8, 1, 4]), torch.tensor([3, 0, 3])
    device = given.device.torch_device
    found = scores.to(device, copy=True)
    add_token_bias(found, rows.to(device), table.to(device), slots.to(device))
    right = scores.clone()
    add_token_bias_reference(right, rows, table, slots)
    assert torch.equal(found.cpu(), right), "scores are others"
    return {}


def _mask(vocab: int, dtype: torch.dtype, given: Surroundings) -> dict[str, Any]:
    """Of some rows, and of all."""
    logits = torch.randn(_ROWS, vocab, generator=_generator(vocab)).to(dtype)
    for rows in ([0, 2, 8], list(range(_ROWS))):
        words = np.random.default_rng(vocab).integers(
            -(2**31), 2**31, (len(rows), -(-vocab // 32)), dtype=np.int32
        )
        found, right = logits.to(given.device.torch_device, copy=True), logits.clone()
        mask_logits(found, rows, words)
        mask_logits_reference(right, rows, words)
        assert torch.equal(found.cpu(), right), "logits are others"
    return {}
