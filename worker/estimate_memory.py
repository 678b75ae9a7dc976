"""What a model and its KV cache need, and what this machine has, for `worker.estimate`.

Nothing is loaded: sizes are those of the files' headers, and formats those that the engine would
choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.kv_cache import kv_block_bytes
from engine.kv_format import choose_kv_format
from engine.loading import ModelFiles
from engine.loading.checkpoint import read_tensors, weight_files
from engine.loading.placement import choose_device, choose_dtype
from engine.loading.weights import STORED_DTYPES
from engine.memory import HOST_SHARE, free_host_bytes
from engine.models.config import ModelConfig
from engine.models.read_config import read_model_config
from worker.estimate_rows import RowTally

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Machine:
    """The device that an engine would compute on.

    Attributes:
        usable: bytes that weights, KV cache and activations may take together.
        total: bytes of the device; of a host, those that are free.
    """

    device: str
    name: str
    usable: int
    total: int


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A model as it would stand in memory.

    Attributes:
        block_bytes: of a KV block.
    """

    config: ModelConfig
    max_model_len: int
    parameters: int
    dtype: str
    weight_bytes: int
    kv_dtype: str
    block_bytes: int
    machine: Machine


def longest(config: EngineConfig, model: ModelConfig) -> int:
    """Tokens of the longest sequence.

    Raises:
        ConfigError: more are asked for than the model takes.
    """
    limit = model.max_model_len
    if config.max_model_len is not None and config.max_model_len > limit:
        raise ConfigError(
            f"max_model_len is {config.max_model_len}, but {config.model} goes to {limit} tokens; "
            "ask for less"
        )
    return config.max_model_len or limit


def measure(config: EngineConfig, files: ModelFiles) -> ModelSizes:
    """Look at a model's files and at this machine.

    Raises:
        ModelError: the model is damaged, or none that is served.
        ConfigError: the device or a format does not exist here.
    """
    model = read_model_config(files.path)
    parameters, stored = _parameters(model, files)
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device, model.checkpoint_dtype, stored)
    kv_format = choose_kv_format(config.kv_cache_dtype, dtype, device)
    return ModelSizes(
        config=model,
        max_model_len=longest(config, model),
        parameters=parameters,
        dtype=str(dtype).removeprefix("torch."),
        weight_bytes=parameters * dtype.itemsize,
        kv_dtype=kv_format.name,
        block_bytes=kv_block_bytes(model, config.block_size, kv_format.dtype),
        machine=_machine(config, device),
    )


def _parameters(model: ModelConfig, files: ModelFiles) -> tuple[int, str]:
    """How many numbers the weights are, and their dtype; from the headers of the files."""
    count, stored = 0, "float32"
    for _, name, part in read_tensors(weight_files(files.path)):
        if name.endswith("rotary_emb.inv_freq") or (name == _HEAD and model.tie_word_embeddings):
            continue
        count += math.prod(part.get_shape())
        if name == _EMBEDDING:
            stored = STORED_DTYPES.get(part.get_dtype(), stored)
    return count, stored


def _machine(config: EngineConfig, device: torch.device) -> Machine:
    if device.type != "cuda":
        free = free_host_bytes()
        return Machine("cpu", "this machine's memory", free, free)
    free, total = torch.cuda.mem_get_info(device)
    usable = max(0, int(total * config.gpu_memory_utilization) - (total - free))
    return Machine(str(device), torch.cuda.get_device_name(device), usable, total)


def memory_json(config: EngineConfig, sizes: ModelSizes, tally: RowTally) -> dict[str, Any]:
    """What is needed of memory and what there is, as `pagemill estimate` reads it."""
    pool = _pool_blocks(config, sizes)
    largest, typical = tally.blocks.largest, tally.blocks.quantile(0.5)
    at_once = min(config.max_num_seqs, tally.rows)
    at_once_mean = round(tally.blocks.mean * at_once)
    machine = sizes.machine
    return {
        "weights": {
            "parameters": sizes.parameters, "dtype": sizes.dtype, "bytes": sizes.weight_bytes,
        },
        "kv": {
            "dtype": sizes.kv_dtype,
            "block_size": config.block_size,
            "block_bytes": sizes.block_bytes,
            "bytes_per_token": sizes.block_bytes // config.block_size,
            "layers": sizes.config.num_layers,
            "kv_heads": sizes.config.num_kv_heads,
            "head_dim": sizes.config.head_dim,
            "row_blocks": {"median": typical, "max": largest},
            "rows_at_once": at_once,
            "blocks_at_once": {"mean": at_once_mean, "max": sum(tally.largest)},
        },
        "machine": {
            "device": machine.device,
            "name": machine.name,
            "total_bytes": machine.total,
            "usable_bytes": machine.usable,
            "kv_blocks": pool,
        },
        "fits": {
            "weights": sizes.weight_bytes <= machine.usable,
            "every_row": pool >= largest,
            "rows_over": tally.blocks.over(pool),
            "all_at_once": pool >= at_once_mean,
        },
    }  # fmt: skip


def _pool_blocks(config: EngineConfig, sizes: ModelSizes) -> int:
    """Blocks of the KV cache that an engine would make here, or at most would.

    What the activations of a GPU's largest step take is measured when an engine starts, and not
    known here.
    """
    if config.num_blocks is not None:
        return config.num_blocks
    left = max(0, sizes.machine.usable - sizes.weight_bytes)
    if sizes.machine.device == "cpu":
        left = min(config.cpu_kv_cache_bytes, int(left * HOST_SHARE))
    return left // sizes.block_bytes
