"""Settings of the engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from engine.errors import ConfigError

BLOCK_SIZES = (8, 16, 32)
DTYPES = ("auto", "float32", "bfloat16", "float16")
KV_CACHE_DTYPES = (*DTYPES, "fp8_e4m3", "fp8_e5m2", "int8")
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to serve one model.

    Attributes:
        model: a Hugging Face folder, a hub id, a `.gguf` file or a known alias.
        dtype: `auto` is the checkpoint's own on a GPU and float32 on a CPU.
        device: `auto` is `cuda` where there is one, else `cpu`.
        block_size: tokens in a KV block.
        num_blocks: size of the KV pool in blocks; None measures the free memory.
        kv_cache_dtype: number format of keys and values; see `engine.kv_format`.
        gpu_memory_utilization: share of the device's memory that the engine may use.
        cpu_kv_cache_bytes: upper bound of the KV pool on a CPU, where the memory is shared
            with everything else that the machine does.
        swap_space: GiB of host memory, at most, for the KV of preempted sequences; with 0 it is
            always computed again.
        watermark: share of the KV pool that stays free when a sequence is admitted beside others.
        max_model_len: longest sequence (prompt and answer); None is the model's own limit.
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: token budget of a step; None is 512 on a CPU, 8192 on a GPU.
        enable_prefix_caching: share the KV of equal prefixes.
        threads: threads of torch on a CPU; None leaves torch's own choice.
        deterministic: give a row the same answer, to the last bit of its logits, whatever else
            is computed with it; only in float32 on a CPU (docs/reproducibility.md).
        overlap: plan a step while the device computes the one before; None does so on a GPU.
        cuda_graphs: launch a decode step as one captured graph; None does so on a GPU that the
            Triton kernels serve.
        check_invariants: verify the scheduler's invariants after every step (for tests).
    """

    model: str
    dtype: str = "auto"
    device: str = "auto"
    block_size: int = 16
    num_blocks: int | None = None
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.90
    cpu_kv_cache_bytes: int = 4 * GIB
    swap_space: float = 4.0
    watermark: float = 0.01
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool = True
    threads: int | None = None
    deterministic: bool = False
    overlap: bool | None = None
    cuda_graphs: bool | None = None
    check_invariants: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("model is empty; name a folder, a hub id, a .gguf file or an alias")
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype is {self.dtype!r}; it must be one of {', '.join(DTYPES)}")
        if self.kv_cache_dtype not in KV_CACHE_DTYPES:
            raise ConfigError(
                f"kv_cache_dtype is {self.kv_cache_dtype!r}; it must be one of "
                f"{', '.join(KV_CACHE_DTYPES)}"
            )
        if self.block_size not in BLOCK_SIZES:
            raise ConfigError(f"block_size is {self.block_size}; it must be 8, 16 or 32")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(
                f"gpu_memory_utilization is {self.gpu_memory_utilization}; it must be over 0 "
                "and at most 1"
            )
        if not 0 <= self.swap_space < math.inf:
            raise ConfigError(
                f"swap_space is {self.swap_space}; it must be a number of GiB, 0 or more"
            )
        if not 0 <= self.watermark < 1:
            raise ConfigError(
                f"watermark is {self.watermark}; it must be 0 or more and less than 1"
            )
        for name in ("num_blocks", "max_model_len", "max_num_batched_tokens", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more")
        if self.max_num_seqs < 1:
            raise ConfigError(f"max_num_seqs is {self.max_num_seqs}; it must be 1 or more")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build a config from plain data; unknown keys are refused."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(
                f"unknown engine settings: {', '.join(unknown)}; known are "
                f"{', '.join(sorted(known))}"
            )
        return cls(**values)
