"""How a step's attention is computed: planned on the host, then brought to the device.

What the GPU's kernels read of a plan travels with the other numbers of the step, in one copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from kernels.attention_metadata import AttentionMetadata
from kernels.batch_invariant_tiles import batch_invariant_plan
from kernels.gathered_attention import GatherPlan
from kernels.gpu.attention_limits import AttentionGeometry, DecodeLimits, TileKind
from kernels.gpu.attention_plan import HostTilePlan, Scratch, plan_attention_tiles
from kernels.gpu.attention_plan import TilePlan as GPUTilePlan
from kernels.gpu.library import serves as gpu_serves
from kernels.kv_layout import LayerKV
from kernels.packed_arrays import PackedArrays
from kernels.tiled_attention import TilePlan


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


class PlannedAttention(Protocol):
    """A plan on the host.

    Attributes:
        arrays: what has to be on the device, each with the numbers that there must be room for.
    """

    @property
    def arrays(self) -> Sequence[tuple[np.ndarray, int]]: ...

    def on_device(self, slots: torch.Tensor, tensors: Sequence[torch.Tensor]) -> AttentionPlan:
        """The plan, given the step's slots and `arrays` on the device."""
        ...


def plan_attention(
    metadata: AttentionMetadata,
    kv: LayerKV,
    num_heads: int,
    windows: Iterable[int | None],
    *,
    batch_invariant: bool = False,
) -> AttentionPlan:
    """Plan a step whose slots are on the device; see `plan_on_host`."""
    planned = plan_on_host(metadata, kv, num_heads, windows, batch_invariant=batch_invariant)
    packed = PackedArrays()
    for array, capacity in planned.arrays:
        packed.add(array, capacity)
    tensors = packed.upload(kv.keys.device) if planned.arrays else ()
    return planned.on_device(metadata.slots, tensors)


def plan_on_host(
    metadata: AttentionMetadata,
    kv: LayerKV,
    num_heads: int,
    windows: Iterable[int | None],
    *,
    batch_invariant: bool = False,
) -> PlannedAttention:
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
    distinct = set(effective.values())
    if gpu_serves(kv.keys.device) and not kv.by_head:
        geometry = AttentionGeometry.of(kv, num_heads)
        return PlannedTiles(
            {
                w: plan_attention_tiles(metadata, geometry, w, batch_invariant=batch_invariant)
                for w in distinct
            },
            effective,
        )
    workspace = torch.empty(0)
    built: dict[int | None, GatherPlan | TilePlan]
    if kv.by_head:
        build = batch_invariant_plan if batch_invariant else TilePlan.build
        built = {w: build(metadata, kv, w, num_heads) for w in distinct}
    else:
        assert not batch_invariant, "torch's attention depends on the shape of the batch"
        gathers = {w: GatherPlan.build(metadata, kv, w) for w in distinct}
        shape = (2, max(plan.most_blocks for plan in gathers.values()), *kv.keys.shape[1:])
        workspace = torch.empty(shape, dtype=kv.keys.dtype, device=kv.keys.device)
        built = {**gathers}
    return _Ready({window: built[w] for window, w in effective.items()}, workspace)


def plan_decodes(
    metadata: AttentionMetadata,
    kv: LayerKV,
    num_heads: int,
    windows: Iterable[int | None],
    limits: DecodeLimits,
    *,
    batch_invariant: bool = False,
) -> PlannedTiles:
    """As `plan_on_host`, of a step of decodes that a CUDA graph of the GPU's kernels computes.

    Which arrays there are, and their capacities, depends on windows and limits alone.
    """
    geometry, distinct = AttentionGeometry.of(kv, num_heads), sorted(set(windows), key=str)
    plans = {
        w: plan_attention_tiles(
            metadata, geometry, w, batch_invariant=batch_invariant, limits=limits
        )
        for w in distinct
    }
    return PlannedTiles(plans, {w: w for w in distinct})


@dataclass(frozen=True, slots=True)
class _Ready:
    """A plan that is made for its device at once."""

    by_window: Mapping[int | None, GatherPlan | TilePlan]
    workspace: torch.Tensor

    @property
    def arrays(self) -> Sequence[tuple[np.ndarray, int]]:
        return ()

    def on_device(self, slots: torch.Tensor, tensors: Sequence[torch.Tensor]) -> AttentionPlan:
        return AttentionPlan(slots, self.by_window, self.workspace)


@dataclass(frozen=True, slots=True)
class PlannedTiles:
    """A plan of the GPU's kernels.

    Attributes:
        plans: by window, those that make a difference.
        windows: each layer's window -> that of its plan.
        memory: for the partial results of all layers, one after the other; None allocates it.
        launched: the kind whose kernels are launched, which is not before any of the plans'; None
            for each plan's own.
    """

    plans: Mapping[int | None, HostTilePlan]
    windows: Mapping[int | None, int | None]
    memory: Scratch | None = None
    launched: TileKind | None = None

    @property
    def arrays(self) -> Sequence[tuple[np.ndarray, int]]:
        return [
            pair
            for plan in self.plans.values()
            for pair in zip(plan.arrays, plan.capacities, strict=True)
        ]

    @property
    def kind(self) -> TileKind:
        """The kernels that compute all windows."""
        return max(plan.kind for plan in self.plans.values())

    def scratch(self, device: torch.device) -> Scratch:
        """New `memory`."""
        largest = max(self.plans.values(), key=lambda plan: plan.num_slots)
        return Scratch.allocate(largest.num_slots, largest.geometry, device)

    def on_device(self, slots: torch.Tensor, tensors: Sequence[torch.Tensor]) -> AttentionPlan:
        """See `PlannedAttention`."""
        scratch = self.scratch(slots.device) if self.memory is None else self.memory
        left = iter(tensors)
        ready = {
            window: plan.on_device([next(left) for _ in plan.arrays], scratch, self.launched)
            for window, plan in self.plans.items()
        }
        by_window = {window: ready[w] for window, w in self.windows.items()}
        return AttentionPlan(slots, by_window, torch.empty(0))
