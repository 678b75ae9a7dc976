"""How many KV blocks fit into the memory of a device."""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from engine.batch import Batch, ScheduledSequence
from engine.config import GIB, EngineConfig
from engine.decode_graphs import wants_graphs
from engine.errors import ConfigError
from engine.host_memory import cgroup_headroom
from engine.kv_cache import KVCache, kv_block_bytes
from engine.kv_format import KVFormat
from engine.loading.loaded import LoadedModel
from engine.logit_rules import LogitRules, TokenBias
from engine.prompt_work import PromptWork
from engine.runner import Runner
from engine.sampling_params import MAX_LOGPROBS, SamplingParams
from engine.task import Pooling

logger = logging.getLogger("pagemill.engine")

# The rest of a host's free memory stays for activations, the worker and everything else.
HOST_SHARE = 0.5
_SWAP_SHARE = 0.25


def size_kv_pool(
    config: EngineConfig,
    loaded: LoadedModel,
    kv_format: KVFormat,
    *,
    max_model_len: int,
    max_num_batched_tokens: int,
) -> int:
    """Choose the number of KV blocks, and log it.

    `config.num_blocks` wins. On a GPU the pool is what `gpu_memory_utilization` leaves beside
    the weights, which are loaded already, and the activations of the largest step (logits and
    log probabilities included), which is run to measure it. On a CPU it is
    `cpu_kv_cache_bytes`, but at most half of the memory that is free on the host and within the
    control group's limit.

    Args:
        max_model_len: longest sequence in tokens; a pool that cannot hold one is warned of.
        max_num_batched_tokens: tokens of the largest step.

    Raises:
        ConfigError: there is not enough memory for a single block.
    """
    block_bytes = kv_block_bytes(loaded.config, config.block_size, kv_format.dtype)
    if config.num_blocks is not None:
        num_blocks = config.num_blocks
    elif loaded.device.type == "cuda":
        num_blocks = _gpu_bytes(config, loaded, kv_format, max_model_len, max_num_batched_tokens)
        num_blocks //= block_bytes
    else:
        num_blocks = _host_bytes(config.cpu_kv_cache_bytes) // block_bytes
    if num_blocks < 1:
        raise ConfigError(_no_room(loaded.device, block_bytes))
    tokens, size = num_blocks * config.block_size, num_blocks * block_bytes
    logger.info(
        "KV cache: %s blocks, %s tokens, %.2f GiB, %s",
        f"{num_blocks:,}",
        f"{tokens:,}",
        size / GIB,
        kv_format.name,
        extra={
            "num_blocks": num_blocks, "tokens": tokens, "bytes": size, "dtype": kv_format.name,
        },
    )  # fmt: skip
    if tokens < max_model_len:
        logger.warning(
            "the KV cache holds %s tokens, fewer than one sequence of max_model_len %s; longer "
            "requests will be refused. Lower max_model_len or give the cache more memory",
            f"{tokens:,}",
            f"{max_model_len:,}",
        )
    return num_blocks


def size_swap_space(config: EngineConfig, block_bytes: int) -> int:
    """Choose the number of host blocks for preempted sequences.

    They are `swap_space` GiB, but at most a quarter of the memory that is free on the host and
    within the control group's limit.
    """
    wanted = int(config.swap_space * GIB)
    return min(wanted, int(free_host_bytes() * _SWAP_SHARE)) // block_bytes


def _host_bytes(bound: int) -> int:
    return min(bound, int(free_host_bytes() * HOST_SHARE))


def free_host_bytes() -> int:
    """Memory of the host that this process may still take, within its control groups."""
    free = psutil.virtual_memory().available
    headroom = cgroup_headroom(Path("/"))
    if headroom is not None:
        free = min(free, headroom)
    return free


def _gpu_bytes(
    config: EngineConfig,
    loaded: LoadedModel,
    kv_format: KVFormat,
    max_model_len: int,
    max_num_batched_tokens: int,
) -> int:
    device = loaded.device
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    kv_cache = one_block(loaded, config.block_size, kv_format)
    runner = Runner(loaded, kv_cache)
    steps = largest_steps(
        config.block_size, config.max_num_seqs, max_model_len, max_num_batched_tokens
    )
    activations: list[int] = []
    for batch in [*steps, *prompt_steps(steps, max_num_batched_tokens)]:
        torch.cuda.reset_peak_memory_stats(device)
        runner.execute(batch)
        torch.cuda.synchronize(device)
        activations.append(torch.cuda.max_memory_allocated(device) - before)
    needed = max(activations)
    if wants_graphs(config, device):
        # Graphs have a pool of their own, which holds what a step of decodes needs.
        needed += activations[1]
    del kv_cache, runner
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    used = total - free
    return max(0, int(total * config.gpu_memory_utilization) - used - needed)


def one_block(loaded: LoadedModel, block_size: int, kv_format: KVFormat) -> KVCache:
    """A cache of one block, to run the steps of `largest_steps` and `prompt_steps` in.

    All their sequences write to that block: what they compute is worthless, what they allocate
    is not. It begins as zeros, since whatever else lies in fresh memory may be NaN, and log
    probabilities of NaN are not worked out to their end.
    """
    kv_cache = KVCache.create(loaded.config, 1, block_size, kv_format, loaded.device)
    for part in kv_cache.storage.parts():
        part.zero_()
    return kv_cache


def largest_steps(
    block_size: int, max_num_seqs: int, max_model_len: int, max_num_batched_tokens: int
) -> list[Batch]:
    """The steps that need the most memory: one long chunk, and the most sampled rows.

    All block tables name block 0 alone, so a cache of one block can run them.
    """
    chunk = min(max_num_batched_tokens, max_model_len)
    rows = min(max_num_seqs, max_num_batched_tokens)
    # Top-p and log probabilities hold the most copies of the logits, and one more is made of the
    # rows that ask for the latter where not all do. Beside them stand the tables of biases and
    # counts, in which every row has its own place.
    params = SamplingParams(temperature=1.0, top_p=0.5, logprobs=MAX_LOGPROBS)
    silent = SamplingParams(temperature=1.0, top_p=0.5)
    table = (0,) * -(-max_model_len // block_size)
    prefill = ScheduledSequence("prefill", (0,) * chunk, max_model_len - chunk, table, True, params)
    decodes = tuple(
        ScheduledSequence(
            f"decode {i}",
            (0,),
            max_model_len - 1,
            table,
            True,
            params if i else silent,
            logit_rules=_rules_of_its_own(),
            history=_OneToken(),
        )
        for i in range(rows)
    )
    return [Batch(1, (prefill,)), Batch(2, decodes)]


@dataclass(frozen=True, slots=True)
class _OneToken:
    """Stands for the tokens of a sequence where none are looked at."""

    prompt_token_ids: tuple[int, ...] = (0,)
    output_token_ids: list[int] = field(default_factory=list)


def _rules_of_its_own() -> LogitRules:
    bias = TokenBias(0.0, array("q", [0]), array("f", [1.0]))
    return LogitRules(bias, bias, None, 0, 1.5, 0.5, 0.5)


def prompt_steps(steps: list[Batch], max_num_batched_tokens: int) -> list[Batch]:
    """The steps that need the most memory where prompts are scored, and where they are embedded.

    Log probabilities of a prompt hold logits beside those of the rows that sample; a mean holds
    all hidden states in float32.

    Args:
        steps: those of `largest_steps`.
    """
    prefill, decodes = (batch.sequences for batch in steps)
    decodes = decodes[: max_num_batched_tokens - 1]
    size = min(len(prefill[0].token_ids), max_num_batched_tokens - len(decodes))
    tokens = prefill[0].token_ids[:size]
    end = prefill[0].end
    wanted = PromptWork((0,) * (end + 1), 0, logprobs=MAX_LOGPROBS)
    chunk = prefill[0]._replace(token_ids=tokens, start=end - size, samples=False, prompt=wanted)
    mean = chunk._replace(prompt=PromptWork((0,) * end, 0, pooling=Pooling.MEAN))
    return [Batch(3, (*decodes, chunk)), Batch(4, (*decodes, mean))]


def _no_room(device: torch.device, block_bytes: int) -> str:
    if device.type == "cuda":
        return (
            f"no memory is left on {device} for a KV block of {block_bytes:,} bytes after the "
            "weights and the largest step: raise gpu_memory_utilization, lower "
            "max_num_batched_tokens or max_num_seqs, stop other processes on the device, or "
            "use a smaller model"
        )
    return (
        f"there is no memory for a KV block of {block_bytes:,} bytes: raise cpu_kv_cache_bytes, "
        "free memory on the host, or raise the container's memory limit"
    )
