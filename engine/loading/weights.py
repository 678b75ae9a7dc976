"""Load a model's weights onto a device."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import torch

from engine.errors import BrokenModel, UnsupportedModel
from engine.loading.checkpoint import read_tensors, weight_files
from engine.loading.loaded import LoadedModel
from engine.loading.placement import check_deterministic, choose_device, choose_dtype
from engine.loading.resolve import ModelFiles
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from engine.models.read_config import read_eos_token_ids, read_model_config
from engine.startup import Step, tell

logger = logging.getLogger("pagemill.engine")

STORED_DTYPES = {"F64": "float32", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def load_model(
    files: ModelFiles, dtype: str = "auto", device: str = "auto", *, deterministic: bool = False
) -> LoadedModel:
    """Load a model.

    Args:
        files: of `resolve_model`.
        dtype: `float32`, `bfloat16`, `float16`, or `auto`: the checkpoint's own on a GPU,
            float32 on a CPU.
        device: `cpu`, `cuda`, `cuda:1` …, or `auto`: a GPU where there is one.
        deterministic: see `engine.config.EngineConfig`.

    A GPU becomes the current device of the calling thread, which is to compute with the model.

    Raises:
        UnsupportedModel: the model needs something that our decoder or the device lacks.
        BrokenModel: tensors are missing, unexpected or of a wrong shape.
        ConfigError: the device or dtype does not exist, or cannot be deterministic.
    """
    placed = choose_device(device)
    if placed.type == "cuda":
        # Triton launches kernels, and torch captures graphs, on this thread's current device,
        # whatever device their tensors are on.
        torch.cuda.set_device(placed)
    config = read_model_config(files.path)
    paths = weight_files(files.path)
    config = _untie_where_different(config, paths)
    eos_token_ids = read_eos_token_ids(files.path)
    stored = _check_tensors(config, paths, files.path)
    chosen = choose_dtype(dtype, placed, config.checkpoint_dtype, stored)
    if deterministic:
        check_deterministic(placed, chosen)
    with torch.no_grad():
        model = _allocate(config, chosen, placed)
        wanted = dict(model.checkpoint_tensors())
        step = Step("loading weights", sum(tensor.numel() for tensor in wanted.values()))
        for _, name, part in read_tensors(paths):
            if name in wanted:
                wanted[name].copy_(part[:])  # converts the dtype
                step.add(wanted[name].numel())
        del wanted  # packing frees each matrix as it goes
        tell("packing weights")
        model.pack(batch_invariant=deterministic)
    model.eval()
    return LoadedModel(model, config, eos_token_ids, chosen, placed)


def _check_tensors(config: ModelConfig, paths: list[Path], folder: Path) -> str:
    """Compare the checkpoint with `config.json` before any memory is taken for the weights.

    Returns:
        The dtype of the weights.
    """
    found = {name: (path, part) for path, name, part in read_tensors(paths)}
    if config.num_layers > len(found):  # too many to build even without weights
        raise BrokenModel(
            f"{folder}: config.json asks for {config.num_layers} layers, but the checkpoint holds "
            f"only {len(found)} tensors"
        )
    wanted = dict(Decoder(config, torch.float32, torch.device("meta")).checkpoint_tensors())
    for name, (path, part) in found.items():
        if _is_ignored(name, config):
            continue
        if name not in wanted:
            raise BrokenModel(
                f"{path} holds the tensor {name}, which a {config.architecture} with this "
                f"config.json does not have"
            )
        shape, expected = list(part.get_shape()), list(wanted[name].shape)
        if shape != expected:
            raise BrokenModel(
                f"{path}: the tensor {name} has the shape {shape}; config.json asks for {expected}"
            )
        if part.get_dtype() not in STORED_DTYPES:
            raise BrokenModel(
                f"{path}: the tensor {name} is stored as {part.get_dtype()}; pagemill reads "
                f"{', '.join(STORED_DTYPES)}"
            )
    if missing := [name for name in wanted if name not in found]:
        more = f" and {len(missing) - 1} more tensors" if len(missing) > 1 else ""
        raise BrokenModel(
            f"{folder}: the tensor {missing[0]}{more} is in none of the files "
            f"{', '.join(path.name for path in paths)}"
        )
    return STORED_DTYPES[found[_EMBEDDING][1].get_dtype()]


def _allocate(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Decoder:
    try:
        return Decoder(config, dtype, device)
    except RuntimeError as error:  # torch.OutOfMemoryError is one; on a CPU it has no class
        raise UnsupportedModel(
            f"there is no memory on {device} for the model's weights in {dtype}: {error}"
        ) from error


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
