"""Where a model's weights go: the device, and the dtype there."""

from __future__ import annotations

import logging
import platform

import torch

from engine.errors import ConfigError, UnsupportedModel
from kernels.cpu.library import library

logger = logging.getLogger("pagemill.engine")

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def choose_device(name: str) -> torch.device:
    """`cpu`, `cuda`, `cuda:1` …, or `auto`: a GPU where there is one.

    Raises:
        ConfigError: there is no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError(f"device is {name!r}, but torch sees no CUDA device here; use cpu")
        if (device.index or 0) >= torch.cuda.device_count():
            raise ConfigError(
                f"device is {name!r}, but there are only {torch.cuda.device_count()} CUDA devices"
            )
        # Memory queries and kernels need the index, which "cuda" alone leaves open.
        device = torch.device("cuda", device.index or 0)
    return device


def choose_dtype(name: str, device: torch.device, named: str | None, stored: str) -> torch.dtype:
    """A dtype by name, or for `auto` the checkpoint's own on a GPU and float32 on a CPU.

    Args:
        named: the dtype that `config.json` names.
        stored: the dtype of the weights, where `config.json` names none.

    Raises:
        ConfigError: there is no such dtype.
        UnsupportedModel: the checkpoint's own is none that we compute in.
    """
    if name != "auto":
        if name not in DTYPES:
            raise ConfigError(f"dtype is {name!r}; it must be auto or one of {', '.join(DTYPES)}")
        if DTYPES[name] == torch.bfloat16 and device.type == "cpu" and not _multiplies_bfloat16():
            logger.warning(
                "this processor has no instructions for bfloat16, so products in it take several "
                "times as long as in float32; use dtype auto or float32"
            )
        return DTYPES[name]
    if device.type == "cpu":
        return torch.float32
    own = named or stored
    if own not in DTYPES:
        raise UnsupportedModel(
            f"the model's dtype is {own!r}; name one of {', '.join(DTYPES)} to compute in"
        )
    return DTYPES[own]


def check_deterministic(device: torch.device, dtype: torch.dtype) -> None:
    """Whether there are batch-invariant kernels for a placement.

    Raises:
        ConfigError: there are none.
    """
    own = str(dtype).removeprefix("torch.")
    if device.type != "cpu" or dtype != torch.float32:
        raise ConfigError(
            f"deterministic answers are computed in float32 on a CPU only, but this model is to "
            f"run in {own} on {device}; add --device cpu --dtype float32, or leave out "
            "--deterministic"
        )
    if library() is None:
        raise ConfigError(
            "deterministic answers need the C++ kernels, which are not there for this processor or "
            "were not built; install pagemill from its wheel or again where there is a C++ "
            "compiler, or leave out --deterministic"
        )


def _multiplies_bfloat16() -> bool:
    """False where it is known that the processor only imitates bfloat16."""
    if platform.machine() != "x86_64":
        return True
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
