"""The engine's greedy answers on the device against those of transformers on the host.

Tiny random models in float32, in mixed batches, whatever the engine is told to do; all of the KV
pool is NaN to begin with. The rule for near ties is that of `tests.support.golden`.
"""

from __future__ import annotations

import copy
import functools
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.items import Item, Surroundings
from engine.batch import Batch, ScheduledSequence
from engine.config import EngineConfig
from engine.core import Engine
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.swap_cost import SwapCost
from kernels.gpu import library
from tests.gpu.near import error, near
from tests.gpu.pools import poison
from tests.support.golden import Reference, near_ties, references
from tests.support.tiny_families import FAMILIES, build_family

GROUP = "engine"
FIRST = ("llama grouped", "qwen3")  # of which more is checked than of the others
# What the engine is told, beside two of its own settings: which kernels, and how to preempt.
_WAYS: dict[str, dict[str, Any]] = {
    "graphs, overlapped": {"cuda_graphs": True, "overlap": True},
    "graphs": {"cuda_graphs": True, "overlap": False},
    "overlapped": {"cuda_graphs": False, "overlap": True},
    "neither": {"cuda_graphs": False, "overlap": False},
    "torch alone": {"kernels": "none", "cuda_graphs": False},
    "swapping": {"num_blocks": 30, "swap_space": 0.1, "preempts": "swap"},
    "swapping without graphs": {
        "num_blocks": 30, "swap_space": 0.1, "preempts": "swap", "cuda_graphs": False,
        "overlap": False,
    },
    "computing again": {"num_blocks": 30, "swap_space": 0, "preempts": "again"},
    "blocks of 8, small chunks": {"block_size": 8, "max_num_batched_tokens": 48},
    "blocks of 32, no prefix cache": {"block_size": 32, "enable_prefix_caching": False},
    "few places": {"max_num_seqs": 3},
}  # fmt: skip
# How far logits may be off where the cache has 8 bits, as a share of the largest.
_KV_FORMATS = {"int8": 0.05, "fp8_e4m3": 0.1, "fp8_e5m2": 0.2}


def items(dry: bool) -> list[Item]:
    ways = ("torch alone", "swapping") if dry else _WAYS
    found = [
        Item(f"engine {way}, {family}", GROUP, partial(_golden, family, way), limit=120.0)
        for family in FIRST[: 1 if dry else None]
        for way in ways
    ]
    found += [
        Item(f"engine logits bf16, {family}", GROUP, partial(_bf16, family))
        for family in FIRST[1 if dry else 0 :]
    ]
    found += [
        Item(f"engine logits, cache of {name}, {family}", GROUP, partial(_kv_format, family, name))
        for family in FIRST[: 1 if dry else None]
        for name in list(_KV_FORMATS)[: 1 if dry else None]
    ]
    others = () if dry else (family for family in FAMILIES if family not in FIRST)
    return found + [
        Item(f"engine graphs, overlapped, {family}", GROUP,
             partial(_golden, family, "graphs, overlapped"))
        for family in others
    ]  # fmt: skip


def _golden(family: str, way: str, given: Surroundings) -> dict[str, Any]:
    torch.set_float32_matmul_precision("highest")  # no TF32
    dry, asked = given.device.dry, dict(_WAYS[way])
    preempts, kernels = asked.pop("preempts", None), asked.pop("kernels", None)
    if dry:  # there is nothing to capture, and torch alone is what does not interpret
        asked["cuda_graphs"] = False
        if preempts is not None:
            asked |= {"num_blocks": 4, "block_size": 8}
    folder, _, prompts, expected = _model(family, dry)
    with _using(kernels):
        engine = Engine(
            EngineConfig(
                **{
                    "model": str(folder), "device": str(given.device.torch_device),
                    "dtype": "float32", "num_blocks": 512, "check_invariants": True,
                    "swap_space": 0.0, "max_model_len": 200, **asked,
                }
            )
        )  # fmt: skip
        for layer in engine.kv_cache.layers:
            poison(layer)
        if preempts == "swap":
            engine.scheduler._swap._cost = SwapCost()  # copying always pays
        answers = _answers(engine, prompts, len(expected[0].token_ids))
    stats = engine.stats
    assert stats.blocks_used == stats.swap_blocks_used == 0, "blocks are still in use"
    if preempts is not None:
        assert stats.preemptions > 0, "nothing was preempted"
        assert (stats.swap_outs > 0) == (preempts == "swap"), "it preempted in the other way"
    ties = near_ties(expected, answers)
    return {"prompts": len(prompts), "near_ties": len(ties), "preemptions": stats.preemptions}


def _answers(
    engine: Engine, prompts: Sequence[tuple[int, ...]], tokens: int
) -> list[tuple[int, ...]]:
    # A stop id that is never sampled: no length is known, so growth is not reserved.
    rules = SamplingParams(max_tokens=tokens, ignore_eos=True, stop_token_ids=(1 << 30,))
    outputs = engine.generate(Request(str(i), p, rules) for i, p in enumerate(prompts))
    found = {output.request_id: tuple(output.token_ids) for output in outputs}
    return [found[str(i)] for i in range(len(prompts))]


@contextmanager
def _using(kernels: str | None) -> Iterator[None]:
    """The Triton kernels as the environment has them, or others, of this process."""
    before = os.environ.get(library.VARIANT_VARIABLE)
    try:
        if kernels is not None:
            os.environ[library.VARIANT_VARIABLE] = kernels
            library.forget()
        yield
    finally:
        if before is None:
            os.environ.pop(library.VARIANT_VARIABLE, None)
        else:
            os.environ[library.VARIANT_VARIABLE] = before
        library.forget()


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def _model(
    family: str, dry: bool
) -> tuple[Path, Any, tuple[tuple[int, ...], ...], list[Reference]]:
    """A model's folder, that of transformers, prompts and its answers; kept for all ways."""
    folder = tempfile.TemporaryDirectory()
    _FOLDERS.append(folder)
    model = build_family(family, Path(folder.name))
    prompts = _prompts(dry)
    expected = references(model, prompts, 12 if dry else 20, eos=None)
    return Path(folder.name), model, prompts, expected


def _prompts(dry: bool) -> tuple[tuple[int, ...], ...]:
    """Some have their beginning in common."""
    generator = torch.Generator().manual_seed(1)

    def prompt(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 256, (length,), generator=generator).tolist())

    # The first ones are short: in a small pool they all begin, and then each needs more blocks.
    system, short = prompt(16), [prompt(6 if dry else 30) for _ in range(3 if dry else 12)]
    if dry:
        return (*short, *(system + prompt(n) for n in (2, 3)))
    return (
        *short,
        *(system * 4 + prompt(n) for n in (1, 5, 50, 51, 52, 80)),
        *(prompt(n) for n in (1, 7, 15, 16, 17, 20, 22, 29, 31, 32, 33, 64, 100, 150)),
    )


def _bf16(family: str, given: Surroundings) -> dict[str, Any]:
    """Logits of prompts in bfloat16: as near to float32 as transformers' own in bfloat16."""
    folder, model, prompts, _ = _model(family, given.device.dry)
    device = given.device.torch_device
    engine = Engine(
        EngineConfig(
            str(folder), device=str(device), dtype="bfloat16", num_blocks=512, swap_space=0,
            max_model_len=200, cuda_graphs=False,
        )
    )  # fmt: skip
    for layer in engine.kv_cache.layers:
        poison(layer)
    ours = engine.runner.logits(_batch(prompts)).float().cpu()
    right = torch.cat([_last_logits(model, p) for p in prompts])
    rounded = copy.deepcopy(model).to(device, torch.bfloat16)
    theirs = torch.cat([_last_logits(rounded, p) for p in prompts])
    off, allowed = error(ours, right), 2 * error(theirs, right) + 1e-3
    assert off <= allowed, f"off by {off:.3g}, transformers by {(allowed - 1e-3) / 2:.3g}"
    return {"error": float(f"{off:.3g}"), "allowed": float(f"{allowed:.3g}")}


def _kv_format(family: str, name: str, given: Surroundings) -> dict[str, Any]:
    """Logits of prompts in float32 with a cache of 8 bits, which they read themselves."""
    folder, model, prompts, _ = _model(family, given.device.dry)
    engine = Engine(
        EngineConfig(
            str(folder), device=str(given.device.torch_device), dtype="float32", num_blocks=512,
            swap_space=0, max_model_len=200, cuda_graphs=False, kv_cache_dtype=name,
        )
    )  # fmt: skip
    for layer in engine.kv_cache.layers:
        poison(layer)
    ours = engine.runner.logits(_batch(prompts)).cpu()
    right = torch.cat([_last_logits(model, prompt) for prompt in prompts])
    return near(ours, right, _KV_FORMATS[name])


def _batch(prompts: Sequence[tuple[int, ...]]) -> Batch:
    """All prompts in one step, each with blocks of its own."""
    sequences, block = [], 0
    for number, prompt in enumerate(prompts):
        count = -(-len(prompt) // 16)
        table = tuple(range(block, block + count))
        block += count
        rules = SamplingParams(max_tokens=4)
        sequences.append(ScheduledSequence(str(number), prompt, 0, table, True, rules))
    return Batch(1, tuple(sequences))


@torch.inference_mode()
def _last_logits(model: Any, prompt: tuple[int, ...]) -> torch.Tensor:
    """[1, vocab_size], float32, on the host."""
    ids = torch.tensor([prompt], device=model.device)
    return model(ids).logits[:, -1].float().cpu()
