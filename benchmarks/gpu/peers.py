"""transformers on the same weights and prompts: continuous batching, and static batches."""

from __future__ import annotations

import functools
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.ceilings import shown
from benchmarks.gpu.device import Device
from benchmarks.gpu.items import Item, Surroundings
from benchmarks.gpu.random_model import fill, prompts, write_files
from benchmarks.gpu.shapes import Shape, shapes
from benchmarks.gpu.throughput import sizes

METHODS = ("generate_batch", "generate")


def peer_name(method: str, shape: Shape) -> str:
    return f"transformers {method}, {shape.name}"


def items(dry: bool) -> list[Item]:
    return [
        Item(peer_name(method, shape), f"transformers {shape.name}",
             partial(_measure, shape, method), limit=120.0)
        for shape in shapes(dry)
        for method in METHODS
    ]  # fmt: skip


def _measure(shape: Shape, method: str, given: Surroundings) -> dict[str, Any]:
    device = given.device
    rows, prompt, answer = sizes(device.dry)
    model = _model(shape, device)
    asked = prompts(shape, rows, prompt)
    generate = _static if method == "generate" else _continuous
    warm_began = time.perf_counter()
    generate(model, asked, 4)
    device.synchronize()
    began = time.perf_counter()
    answers = generate(model, asked, answer)
    device.synchronize()
    seconds = time.perf_counter() - began
    lengths = [len(tokens) for tokens in answers]
    assert lengths == [answer] * rows, f"answers of {sorted(set(lengths))} tokens came"
    return {
        "rows": rows, "prompt_tokens": prompt, "answer_tokens": answer,
        "tokens_per_s": shown(rows * answer / seconds),
        "warm_up_s": shown(began - warm_began),
    }  # fmt: skip


@functools.cache
def _model(shape: Shape, device: Device) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        write_files(shape, Path(folder))
        config = AutoConfig.from_pretrained(folder)
    with device.torch_device:
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa"
        )
    parameters = dict(model.named_parameters())  # a tied head is named once
    fill(parameters.items(), device.torch_device)
    model.generation_config.eos_token_id = None
    return model.eval()


def _static(model: Any, asked: list[list[int]], answer: int) -> list[list[int]]:
    """One batch; all prompts are of one length."""
    ids = torch.tensor(asked, device=model.device)
    with torch.inference_mode():
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=answer,
            pad_token_id=0,
        )  # fmt: skip
    return found[:, ids.shape[1] :].tolist()


def _continuous(model: Any, asked: list[list[int]], answer: int) -> list[list[int]]:
    """With its own choice of sizes and graphs, which on a processor would take half a minute."""
    from transformers import GenerationConfig
    from transformers.generation import ContinuousBatchingConfig

    rules = GenerationConfig(
        do_sample=False, max_new_tokens=answer, eos_token_id=-1, pad_token_id=0
    )
    sizes = {}
    if model.device.type == "cpu":
        small = ContinuousBatchingConfig(page_size=32, num_blocks=64, max_batch_tokens=64)
        sizes = {"continuous_batching_config": small}
    found = model.generate_batch(asked, generation_config=rules, progress_bar=False, **sizes)
    # Results are keyed by request ids that number the prompts.
    ordered = sorted(found.items(), key=lambda item: int(item[0].rsplit("_", 1)[-1]))
    return [output.generated_tokens for _, output in ordered]
