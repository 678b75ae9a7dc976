"""Causal grouped-query attention over paged keys and values, prefill and decode in one.

Paging follows Kwon et al., "Efficient memory management for large language model serving
with PagedAttention", SOSP 2023; query heads share key-value heads as in Ainslie et al.,
2023, arXiv:2305.13245: head `h` of the queries reads head `h // (heads / kv_heads)`. A layer
may have a sliding window (Jiang et al., "Mistral 7B", 2023, arXiv:2310.06825), and scores that are
capped (Gemma 2, arXiv:2408.00118).
"""

from __future__ import annotations

import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.attention_plan import AttentionPlan
from kernels.gathered_attention import gathered_attention
from kernels.gpu.attention_plan import TilePlan as GPUTilePlan
from kernels.gpu.library import find as find_gpu
from kernels.kv_layout import LayerKV
from kernels.tiled_attention import TilePlan, tiled_attention


def paged_attention(
    queries: torch.Tensor,
    kv: LayerKV,
    plan: AttentionPlan,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attend from each token of the step to its sequence's tokens up to itself.

    Args:
        queries: [num_tokens, num_heads, head_dim], rotated.
        kv: the layer's storage; this step's keys and values are in it already.
        plan: of `kernels.attention_plan`.
        scale: what dot products are multiplied by.
        window: the layer's sliding window, one of those that were planned: token `i` attends
            to token `j` where `0 <= i - j < window`.
        softcap: scores `x` become `softcap * tanh(x / softcap)`; only on a GPU.

    Returns:
        [num_tokens, num_heads, head_dim], a new tensor.
    """
    prepared = plan.by_window[window]
    if isinstance(prepared, GPUTilePlan):
        on_gpu = find_gpu("paged_attention", queries.device)
        assert on_gpu is not None, "the plan was made for its kernels"
        storage = kv.keys, kv.values, kv.key_scales, kv.value_scales
        return on_gpu(queries, *storage, *prepared.arguments, scale, softcap, *prepared.launch)
    assert softcap is None, "only the kernels of the GPU cap scores"
    if isinstance(prepared, TilePlan):
        return tiled_attention(queries, kv, prepared, scale)
    return gathered_attention(queries, kv, prepared, plan.workspace, scale)


def paged_attention_reference(
    queries: torch.Tensor,
    kv: LayerKV,
    metadata: AttentionMetadata,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """The specification of `paged_attention`: one query at a time, in float32."""
    output = torch.empty_like(queries)
    group = queries.shape[1] // kv.num_kv_heads
    for i in range(metadata.num_sequences):
        for token in range(metadata.query_starts[i], metadata.query_starts[i + 1]):
            end = metadata.context_lens[i] - (metadata.query_starts[i + 1] - 1 - token)
            start = 0 if window is None else max(0, end - window)
            keys, values = (
                stored[start:end].float().repeat_interleave(group, dim=1)
                for stored in kv.read(metadata.block_tables[i])
            )
            scores = torch.einsum("hd,lhd->hl", queries[token].float(), keys) * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            weights = scores.softmax(-1)
            output[token] = torch.einsum("hl,lhd->hd", weights, values).to(output.dtype)
    return output
