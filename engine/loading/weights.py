"""Load a model's weights onto a device."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import torch

from engine.errors import BrokenModel, ConfigError
from engine.loading.checkpoint import read_tensors, weight_files
from engine.loading.loaded import LoadedModel
from engine.loading.resolve import ModelFiles
from engine.models.config import ModelConfig, read_eos_token_ids, read_model_config
from engine.models.registry import DecoderModel, model_class

logger = logging.getLogger("pagemill.engine")

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_STORED_DTYPES = {"F64": "float32", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def load_model(files: ModelFiles, dtype: str = "auto", device: str = "auto") -> LoadedModel:
    """Load a model.

    Args:
        files: of `resolve_model`.
        dtype: `float32`, `bfloat16`, `float16`, or `auto`: the checkpoint's own on a GPU,
            float32 on a CPU.
        device: `cpu`, `cuda`, `cuda:1` …, or `auto`: a GPU where there is one.

    Raises:
        UnsupportedModel: we have no model for this architecture or variant.
        BrokenModel: tensors are missing, unexpected or of a wrong shape.
        ConfigError: the device or dtype does not exist.
    """
    placed = _device(device)
    config = read_model_config(files.path)
    make = model_class(config.architecture)
    paths = weight_files(files.path)
    config = _untie_where_different(config, paths)
    chosen = _dtype(dtype, placed, config, paths)
    with torch.no_grad():
        model = make(config, chosen, placed)
        _fill(model, paths, files.path)
    model.eval()
    return LoadedModel(model, config, read_eos_token_ids(files.path), chosen, placed)


def _fill(model: DecoderModel, paths: list[Path], folder: Path) -> None:
    """Copy every tensor of the checkpoint to its place, converting its dtype."""
    wanted = dict(model.checkpoint_tensors())
    missing = dict.fromkeys(wanted)
    for path, name, part in read_tensors(paths):
        if _is_ignored(name, model.config):
            continue
        if name not in wanted:
            raise BrokenModel(
                f"{path} holds the tensor {name}, which a {model.config.architecture} with this "
                f"config.json does not have"
            )
        target, shape = wanted[name], list(part.get_shape())
        if shape != list(target.shape):
            raise BrokenModel(
                f"{path}: the tensor {name} has the shape {shape}; config.json asks for "
                f"{list(target.shape)}"
            )
        if part.get_dtype() not in _STORED_DTYPES:
            raise BrokenModel(
                f"{path}: the tensor {name} is stored as {part.get_dtype()}; pagemill reads "
                f"{', '.join(_STORED_DTYPES)}"
            )
        target.copy_(part[:])
        missing.pop(name, None)
    if missing:
        names = list(missing)
        more = f" and {len(names) - 1} more tensors" if len(names) > 1 else ""
        raise BrokenModel(
            f"{folder}: the tensor {names[0]}{more} is in none of the files "
            f"{', '.join(path.name for path in paths)}"
        )


def _is_ignored(name: str, config: ModelConfig) -> bool:
    """Old checkpoints store RoPE's frequencies; some store a tied head a second time."""
    return name.endswith("rotary_emb.inv_freq") or (name == _HEAD and config.tie_word_embeddings)


def _untie_where_different(config: ModelConfig, paths: list[Path]) -> ModelConfig:
    """A head that config.json calls tied but that has weights of its own is not tied."""
    if not config.tie_word_embeddings:
        return config
    found: dict[str, Any] = {
        name: part for _, name, part in read_tensors(paths) if name in (_EMBEDDING, _HEAD)
    }
    if len(found) < 2 or torch.equal(found[_EMBEDDING][:], found[_HEAD][:]):
        return config
    logger.warning(
        "config.json ties %s to %s, but the checkpoint holds different values for them; "
        "they are used untied",
        _HEAD,
        _EMBEDDING,
    )
    return dataclasses.replace(config, tie_word_embeddings=False)


def _device(name: str) -> torch.device:
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


def _dtype(name: str, device: torch.device, config: ModelConfig, paths: list[Path]) -> torch.dtype:
    if name == "auto":
        name = "float32"
        if device.type == "cuda":
            stored = next(part.get_dtype() for _, _, part in read_tensors(paths))
            name = config.checkpoint_dtype or _STORED_DTYPES.get(stored, "float32")
    if name not in _DTYPES:
        raise ConfigError(f"dtype is {name!r}; it must be auto or one of {', '.join(_DTYPES)}")
    return _DTYPES[name]
