"""Causal grouped-query attention over paged keys and values, prefill and decode in one.

Paging follows Kwon et al., "Efficient memory management for large language model serving
with PagedAttention", SOSP 2023; query heads share key-value heads as in Ainslie et al.,
2023, arXiv:2305.13245: head `h` of the queries reads head `h // (heads / kv_heads)`. A layer
may have a sliding window (Jiang et al., "Mistral 7B", 2023, arXiv:2310.06825), and scores that are
capped (Gemma 2, arXiv:2408.00118).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.batch_invariant_tiles import batch_invariant_plan
from kernels.gathered_attention import GatherPlan, gathered_attention
from kernels.gpu.attention_limits import AttentionGeometry
from kernels.gpu.attention_plan import TilePlan as GPUTilePlan
from kernels.gpu.attention_plan import plan_attention_tiles
from kernels.gpu.library import find as find_gpu
from kernels.gpu.library import serves as gpu_serves
from kernels.kv_layout import LayerKV
from kernels.packed_arrays import PackedArrays
from kernels.tiled_attention import TilePlan, tiled_attention


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What all layers of a step share.

    Attributes:
        slots: see `AttentionMetadata`.
        by_window: how to attend, for each window that a layer has.
        workspace: where every gather of the step puts its blocks; empty where none is gathered.
    """

    slots: torch.Tensor
    by_window: Mapping[int | None, GatherPlan | TilePlan | GPUTilePlan]
    workspace: torch.Tensor


def plan_attention(
    metadata: AttentionMetadata,
    kv: LayerKV,
    num_heads: int,
    windows: Iterable[int | None],
    *,
    batch_invariant: bool = False,
) -> AttentionPlan:
    """Prepare what all layers of a step share, for the device and the layout of `kv`.

    Args:
        num_heads: heads of the queries.
        windows: the sliding window of each layer in tokens, its own token included; None
            attends to everything. Layers with the same window share their preparation.
        batch_invariant: what a query gets is to have the same bits whatever else the step
            computes; only for a cache head by head, or the kernels of the GPU.
    """
    longest = max(metadata.context_lens)
    # A window that no sequence has outgrown is no window.
    effective = {w: w if w is not None and w < longest else None for w in windows}
    workspace = torch.empty(0)
    built: dict[int | None, GatherPlan | TilePlan | GPUTilePlan]
    if gpu_serves(kv.keys.device) and not kv.by_head:
        built = {**_on_gpu(metadata, kv, num_heads, set(effective.values()), batch_invariant)}
    elif kv.by_head:
        build = batch_invariant_plan if batch_invariant else TilePlan.build
        built = {w: build(metadata, kv, w, num_heads) for w in set(effective.values())}
    else:
        assert not batch_invariant, "torch's attention depends on the shape of the batch"
        gathers = {w: GatherPlan.build(metadata, kv, w) for w in set(effective.values())}
        shape = (2, max(plan.most_blocks for plan in gathers.values()), *kv.keys.shape[1:])
        workspace = torch.empty(shape, dtype=kv.keys.dtype, device=kv.keys.device)
        built = {**gathers}
    by_window = {window: built[w] for window, w in effective.items()}
    return AttentionPlan(metadata.slots, by_window, workspace)


def _on_gpu(
    metadata: AttentionMetadata,
    kv: LayerKV,
    num_heads: int,
    windows: Iterable[int | None],
    batch_invariant: bool,
) -> dict[int | None, GPUTilePlan]:
    """A plan for each window; one copy brings all of them to the device."""
    geometry, packed = AttentionGeometry.of(kv, num_heads), PackedArrays()
    plans = {
        window: plan_attention_tiles(metadata, geometry, window, batch_invariant=batch_invariant)
        for window in windows
    }
    for plan in plans.values():
        for array in plan.arrays:
            packed.add(array)
    tensors = iter(packed.upload(kv.keys.device))
    return {
        window: plan.on_device([next(tensors) for _ in plan.arrays])
        for window, plan in plans.items()
    }


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
        plan: of `plan_attention`.
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
