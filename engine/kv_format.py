"""How the numbers of the KV cache are stored."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.errors import ConfigError
from kernels.cpu.library import library
from kernels.gpu.library import serves

# What the configuration calls each format; 8 bits have scales (`kernels.kv_quantization`).
FORMATS = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}
_NAMES = {dtype: name for name, dtype in FORMATS.items()}


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
        """As in `FORMATS`; it is part of what decides the answers (`worker.fingerprint`)."""
        return _NAMES[self.dtype]


def choose_kv_format(name: str, model_dtype: torch.dtype, device: torch.device) -> KVFormat:
    """A format by name.

    `auto` is the model's own dtype, so that answers are those of the model. Fewer bits hold more
    tokens and are read faster; what they cost is in docs/models.md. The Triton kernels read every
    format, the C++ kernels float32 and float16, and torch's own attention the model's.

    Raises:
        ConfigError: what computes attention here cannot read that format.
    """
    own = _NAMES[model_dtype]
    native = False
    if serves(device):
        possible = tuple(FORMATS)
    else:
        native = device.type == "cpu" and model_dtype is torch.float32 and library() is not None
        possible = ("float32", "float16") if native else (own,)
    wanted = own if name == "auto" else name
    if wanted in possible:
        return KVFormat(FORMATS[wanted], by_head=native)
    raise ConfigError(
        f"kv_cache_dtype is {name}, but a {own} model on {device} keeps its cache in "
        f"{' or '.join(possible)}; name that, or auto"
    )
