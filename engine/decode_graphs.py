"""Steps of decodes as CUDA graphs: all kernels of the model in one launch.

A decode of a small model takes the device less time than the host needs to launch its kernels one
by one. A graph is captured for each of a ladder of batch sizes and each kind of attention; a step
runs the smallest one that it fits into, and pads. Whatever differs from step to step the kernels
read from one buffer of the device, which the host fills by one copy before the graph is launched:
so a graph's addresses and grids never change.

A graph ends with the hidden states. What comes after them, logits and sampling, has shapes that
depend on what rows ask for, and is launched as usual.
"""

from __future__ import annotations

import bisect
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from engine.batch import ScheduledSequence
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.kv_cache import KVCache
from engine.launched_step import LaunchedStep
from engine.loading.loaded import LoadedModel
from engine.startup import Step
from engine.step_inputs import StepArrays, StepInputs
from kernels.attention_plan import plan_decodes
from kernels.gpu.attention_limits import DecodeLimits, TileKind
from kernels.gpu.attention_plan import Scratch
from kernels.gpu.library import serves

log = logging.getLogger("pagemill.engine")

Replay = Callable[[], None]


class Capture(Protocol):
    """Records what a device is given."""

    def __call__(self, compute: Callable[[], None]) -> Replay:
        """Returns what gives the device all that `compute` gives it, in one launch.

        `compute` is called twice: kernels are compiled, and libraries set up, at their first call,
        which cannot be captured.
        """
        ...


class CudaCapture:
    """CUDA graphs that share one pool of memory: only one of them runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, compute: Callable[[], None]) -> Replay:
        compute()
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            compute()
        return graph.replay


def ladder(most: int) -> tuple[int, ...]:
    """Batch sizes that have graphs, ascending; `most` sequences fit into the last one.

    Steps grow with the size: padding costs a large batch little, and each graph takes time to
    capture.
    """
    sizes = [1, 2, 4, 8]
    while sizes[-1] < most:
        step = 8 if sizes[-1] < 64 else 16 if sizes[-1] < 256 else 64
        sizes.append(sizes[-1] + step)
    return tuple(sizes[: bisect.bisect_left(sizes, most) + 1])


def open_decode_graphs(
    config: EngineConfig, loaded: LoadedModel, kv_cache: KVCache, max_model_len: int
) -> DecodeGraphs | None:
    """Captured graphs; None where they are not wanted.

    Raises:
        ConfigError: they are asked for on a device that has none.
    """
    if not wants_graphs(config, loaded.device):
        return None
    capture = CudaCapture(loaded.device)
    graphs = DecodeGraphs(loaded, kv_cache, config.max_num_seqs, max_model_len, capture)
    graphs.warm_up()
    return graphs


def wants_graphs(config: EngineConfig, device: torch.device) -> bool:
    """Whether the settings ask for graphs; see `open_decode_graphs`."""
    if config.cuda_graphs and not serves(device):
        raise ConfigError(
            f"cuda_graphs is on, but the kernels that can be captured do not serve {device}; "
            "leave it to the engine, or use a GPU with Triton"
        )
    if config.cuda_graphs is None:
        return device.type == "cuda" and serves(device)
    return config.cuda_graphs


@dataclass(frozen=True)
class _Graph:
    """One captured step; `hidden` is where it leaves what it computes, [size, hidden_size]."""

    replay: Replay
    hidden: torch.Tensor


class DecodeGraphs:
    """The graphs of one model and its cache.

    Args:
        max_num_seqs: most sequences of a step.
        max_model_len: most tokens of a sequence.
        capture: of the device.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        kv_cache: KVCache,
        max_num_seqs: int,
        max_model_len: int,
        capture: Capture,
    ) -> None:
        self._loaded, self._kv_cache = loaded, kv_cache
        self._sizes, self._max_samples = ladder(max_num_seqs), max_num_seqs
        self._limits = {size: DecodeLimits(size, max_model_len) for size in self._sizes}
        self._capture = capture
        self._graphs: dict[tuple[int, TileKind], _Graph] = {}
        self._buffer: torch.Tensor | None = None
        self._scratch: Scratch | None = None

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Capture all graphs; the log says how many, and how long that took."""
        began = time.perf_counter()
        nothing = StepArrays.of_padding(self._kv_cache.block_size)
        # The largest first: buffer, scratch and the pool's memory then suffice for all others.
        step = Step("capturing CUDA graphs", len(self._sizes) * len(TileKind))
        for size in reversed(self._sizes):
            for kind in TileKind:
                inputs = self._inputs(nothing, None, size, kind)[0]
                self._graphs[size, kind] = self._captured(inputs)
                step.add(1)
        seconds = time.perf_counter() - began
        log.info(
            "CUDA graphs: %s for decodes of up to %s sequences, captured in %.1f s",
            len(self._graphs), self._sizes[-1], seconds,
            extra={"graphs": len(self._graphs), "seconds": round(seconds, 3)},
        )  # fmt: skip

    def fit(self, sequences: Sequence[ScheduledSequence]) -> bool:
        """Whether a step is one of decodes alone, of whose prompts nothing is wanted."""
        tokens = 0
        for s in sequences:
            if len(s.token_ids) > 1 or s.prompt is not None:
                return False
            tokens += len(s.token_ids)
        return tokens <= self._sizes[-1] and len(sequences) <= self._max_samples

    def run(
        self, arrays: StepArrays, before: LaunchedStep | None
    ) -> tuple[StepInputs, torch.Tensor]:
        """Launch a step that fits; see `StepArrays.upload`.

        Returns:
            Its inputs, and the hidden states of its `logit_rows`, [rows, hidden_size].
        """
        size = self._sizes[bisect.bisect_left(self._sizes, len(arrays.token_ids))]
        inputs, kind = self._inputs(arrays, before, size)
        graph = self._graphs[size, kind]
        graph.replay()
        return inputs, graph.hidden.index_select(0, inputs.logit_rows)

    def _inputs(
        self,
        arrays: StepArrays,
        before: LaunchedStep | None,
        size: int,
        kind: TileKind | None = None,
    ) -> tuple[StepInputs, TileKind]:
        """A step in the memory that the graphs of a size read, and the kind of its attention."""
        config = self._loaded.config
        planned = plan_decodes(
            arrays.attention,
            self._kv_cache.layer(0),
            config.num_heads,
            config.windows,
            self._limits[size],
            batch_invariant=self._loaded.model.batch_invariant,
        )
        if self._scratch is None:
            self._scratch = planned.scratch(self._loaded.device)
        planned = replace(planned, memory=self._scratch, launched=kind)
        padding = _Padding(size, self._max_samples, self._memory)
        return arrays.upload(self._loaded.device, planned, before, padding), planned.kind

    def _captured(self, inputs: StepInputs) -> _Graph:
        shape = len(inputs.token_ids), self._loaded.config.hidden_size
        hidden = torch.empty(shape, dtype=self._loaded.dtype, device=self._loaded.device)

        def compute() -> None:
            hidden.copy_(
                self._loaded.model.hidden_states(
                    inputs.token_ids, inputs.positions, self._kv_cache, inputs.plan
                )
            )

        return _Graph(self._capture(compute), hidden)

    def _memory(self, num_bytes: int) -> torch.Tensor:
        if self._buffer is None:
            self._buffer = torch.empty(num_bytes, dtype=torch.uint8, device=self._loaded.device)
        return self._buffer


@dataclass(frozen=True, slots=True)
class _Padding:
    """See `engine.step_inputs.Padding`."""

    tokens: int
    samples: int
    memory: Callable[[int], torch.Tensor]
