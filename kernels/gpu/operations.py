"""All operations of the GPU, by name. A test walks them: the engine uses each one on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.gpu.attention import paged_attention
from kernels.gpu.block_copy import copy_blocks, read_blocks, write_blocks
from kernels.gpu.embedding import gather_rows
from kernels.gpu.gated_activation import gelu_and_mul, silu_and_mul
from kernels.gpu.greedy import greedy_tokens
from kernels.gpu.logit_rules import add_token_bias, apply_penalties, mask_logits
from kernels.gpu.logprobs import token_logprobs
from kernels.gpu.operation import Operation
from kernels.gpu.rms_norm import add_rms_norm, rms_norm
from kernels.gpu.rope_kv_write import rope_kv_write
from kernels.gpu.sampling import sample_rows

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
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
