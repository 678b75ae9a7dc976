"""Taking tokens that are not allowed out of logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from kernels.gpu.library import find as find_gpu
from kernels.host_tensors import integers, to_device


def mask_logits(logits: torch.Tensor, rows: Sequence[int], bitmask: npt.NDArray[np.int32]) -> None:
    """Give each token that is not allowed the lowest finite logit.

    It is finite because a row with a logit that is not counts as one that cannot be trusted.

    Args:
        logits: [all rows, vocab_size], any floating dtype; changed in place.
        rows: which of them have a mask, ascending, each once.
        bitmask: [len(rows), words], int32: bit `i % 32` of word `i // 32` is set where token i is
            allowed. At least as many bits as the vocabulary has tokens.
    """
    on_gpu = find_gpu("mask_logits", logits.device)
    if on_gpu is not None and logits.is_contiguous():
        words = to_device(torch.from_numpy(bitmask), logits.device)
        on_gpu(logits, integers(rows, logits.device), words)
        return
    mask_logits_reference(logits, rows, bitmask)


def mask_logits_reference(
    logits: torch.Tensor, rows: Sequence[int], bitmask: npt.NDArray[np.int32]
) -> None:
    """The specification of `mask_logits`, of any device."""
    if logits.is_cpu:
        bits = unpack_on_host(bitmask)
    else:  # a bit a token goes over the bus, not a byte
        bits = unpack_on_device(to_device(torch.from_numpy(bitmask), logits.device))
    forbidden = bits[:, : logits.shape[-1]] == 0
    least = torch.finfo(logits.dtype).min
    if len(rows) == len(logits):
        logits.masked_fill_(forbidden, least)
        return
    index = integers(rows, logits.device)
    logits.index_copy_(0, index, logits.index_select(0, index).masked_fill_(forbidden, least))


def unpack_on_host(bitmask: npt.NDArray[np.int32]) -> torch.Tensor:
    """[rows, 32 * words], uint8: 0 or 1 for each bit."""
    return torch.from_numpy(np.unpackbits(bitmask.view(np.uint8), axis=-1, bitorder="little"))


def unpack_on_device(words: torch.Tensor) -> torch.Tensor:
    """[rows, 32 * words], int32: 0 or 1 for each bit.

    Args:
        words: [rows, words], int32.
    """
    shifts = torch.arange(32, dtype=torch.int32, device=words.device)
    return ((words[:, :, None] >> shifts) & 1).flatten(1)
