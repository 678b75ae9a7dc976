"""Causal grouped-query attention over paged keys and values, prefill and decode in one.

Paging follows Kwon et al., "Efficient memory management for large language model serving
with PagedAttention", SOSP 2023; query heads share key-value heads as in Ainslie et al.,
2023, arXiv:2305.13245: head `h` of the queries reads head `h // (heads / kv_heads)`.
"""

from __future__ import annotations

import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.gathered_attention import GatherPlan, gathered_attention
from kernels.kv_layout import LayerKV

AttentionPlan = GatherPlan


def plan_attention(metadata: AttentionMetadata, kv: LayerKV) -> AttentionPlan:
    """Prepare what all layers of a step share, for the device of `kv`."""
    return GatherPlan.build(metadata, kv)


def paged_attention(
    queries: torch.Tensor, kv: LayerKV, plan: AttentionPlan, scale: float
) -> torch.Tensor:
    """Attend from each token of the step to its sequence's tokens up to itself.

    Args:
        queries: [num_tokens, num_heads, head_dim], rotated.
        kv: the layer's storage; this step's keys and values are in it already.
        plan: of `plan_attention`.
        scale: what dot products are multiplied by.

    Returns:
        [num_tokens, num_heads, head_dim], a new tensor.
    """
    return gathered_attention(queries, kv, plan, scale)


def paged_attention_reference(
    queries: torch.Tensor, kv: LayerKV, metadata: AttentionMetadata, scale: float
) -> torch.Tensor:
    """The specification of `paged_attention`: one query at a time, in float32."""
    output = torch.empty_like(queries)
    group = queries.shape[1] // kv.num_kv_heads
    for i in range(metadata.num_sequences):
        for token in range(metadata.query_starts[i], metadata.query_starts[i + 1]):
            length = metadata.context_lens[i] - (metadata.query_starts[i + 1] - 1 - token)
            blocks = list(metadata.block_tables[i])
            keys = kv.keys[blocks].flatten(0, 1)[:length].float()
            values = kv.values[blocks].flatten(0, 1)[:length].float()
            keys = keys.repeat_interleave(group, dim=1)
            values = values.repeat_interleave(group, dim=1)
            scores = torch.einsum("hd,lhd->hl", queries[token].float(), keys) * scale
            weights = scores.softmax(-1)
            output[token] = torch.einsum("hl,lhd->hd", weights, values).to(output.dtype)
    return output
