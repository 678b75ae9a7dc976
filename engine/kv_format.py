"""How the numbers of the KV cache are stored."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.errors import ConfigError
from kernels.cpu.library import library


@dataclass(frozen=True, slots=True)
class KVFormat:
    """The format of all blocks of a cache.

    Attributes:
        dtype: of keys and values.
        by_head: whether they lie head by head, for the C++ kernels; see `LayerKV`.
    """

    dtype: torch.dtype
    by_head: bool = False

    @property
    def name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def choose_kv_format(name: str, model_dtype: torch.dtype, device: torch.device) -> KVFormat:
    """A format by name.

    `auto` is the model's own dtype, so that answers are those of the model. float16 halves what
    attention reads, where the C++ kernels do; what it costs is in docs/models.md.

    Raises:
        ConfigError: what computes attention here cannot read that format.
    """
    native = device.type == "cpu" and model_dtype is torch.float32 and library() is not None
    own = KVFormat(model_dtype, by_head=native)
    if name in ("auto", own.name):
        return own
    if native and name == "float16":
        return KVFormat(torch.float16, by_head=True)
    raise ConfigError(
        f"kv_cache_dtype is {name}, but a {own.name} model on {device} keeps its cache in "
        f"{'float32 or float16' if native else own.name}; name that, or auto"
    )
