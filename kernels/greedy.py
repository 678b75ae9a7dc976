"""The likeliest token of each row of logits, and whether the row can be trusted."""

from __future__ import annotations

from ctypes import c_int64, c_void_p

import torch

from kernels.cpu.library import find
from kernels.gpu.library import find as find_gpu

NO_TOKEN = -1


def greedy_tokens(logits: torch.Tensor) -> torch.Tensor:
    """The largest logit of each row, of equal ones the lowest id.

    Args:
        logits: [rows, vocab_size], any floating dtype.

    Returns:
        [rows], int64; `NO_TOKEN` for a row with a logit that is not finite.
    """
    on_gpu = find_gpu("greedy_tokens", logits.device)
    if on_gpu is not None and logits.stride(-1) == 1:
        return on_gpu(logits)
    if logits.is_cpu and logits.dtype is torch.float32 and logits.is_contiguous():
        kernel = find("greedy_tokens", c_void_p, c_void_p, c_int64, c_int64)
        if kernel is not None:
            rows, vocab_size = logits.shape
            tokens = logits.new_empty(rows, dtype=torch.int64)
            kernel(logits.data_ptr(), tokens.data_ptr(), rows, vocab_size)
            return tokens
    return greedy_tokens_reference(logits)


def greedy_tokens_reference(logits: torch.Tensor) -> torch.Tensor:
    """The specification of `greedy_tokens`, of any device and dtype."""
    finite = logits.amax(-1).isfinite() & logits.amin(-1).isfinite()
    return logits.argmax(-1).masked_fill_(~finite, NO_TOKEN)
