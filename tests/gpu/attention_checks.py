"""Attention of decodes and prompts, alone and mixed, against float64."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.items import Item, Surroundings
from kernels.attention_plan import plan_attention
from kernels.paged_attention import paged_attention
from tests.gpu.near import near
from tests.gpu.pools import Step, attention_in_float64, filled

# Most of the time goes to compiling, so they are several processes.
_WIDE, _NARROW, _OTHERS = "attention", "attention, 8 bits", "attention, other heads"
_FORMATS: dict[str, tuple[torch.dtype, torch.dtype]] = {
    "float32": (torch.float32, torch.float32),
    "float16": (torch.float16, torch.float16),
    "bf16": (torch.bfloat16, torch.bfloat16),
    "bf16 on int8": (torch.bfloat16, torch.int8),
    "bf16 on e4m3": (torch.bfloat16, torch.float8_e4m3fn),
    "bf16 on e5m2": (torch.bfloat16, torch.float8_e5m2),
    "float32 on int8": (torch.float32, torch.int8),
}
_EDGES = (1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 300, 1025)
_MIXED = Step((1,) * 8 + (1, 2, 77, 130), (5, 40, 300, 512, 513, 1, 16, 700, 9, 2, 77, 530))
_STEPS = {
    "decodes": Step((1,) * len(_EDGES), _EDGES),
    "one decode of 9,000": Step((1,), (9000,)),
    "two decodes of 16,001 and 3": Step((1, 1), (16001, 3)),
    "64 decodes that share 512": Step((1,) * 64, tuple(513 + i for i in range(64)), 512),
    "200 decodes that share 2,048": Step(
        (1,) * 200, tuple(2049 + i % 40 for i in range(200)), 2048
    ),
    "a prompt of 1,000": Step((1000,), (1000,)),
    "prompts": Step((1, 7, 129, 64, 300), (1, 7, 129, 64, 300)),
    "chunks after cached tokens": Step((16, 100, 333), (500, 101, 1333)),
    "mixed": _MIXED,
    "mixed, window 21": replace(_MIXED, window=21),
    "mixed, window 256": replace(_MIXED, window=256),
    "mixed, blocks of 8": replace(_MIXED, block_size=8),
    "mixed, blocks of 32": replace(_MIXED, block_size=32),
}
# Heads, key-value heads and their width in other models; those of Llama-3-8B are in all others.
_HEADS = {
    "Qwen3-0.6B": (16, 8, 128), "SmolLM2": (9, 3, 64), "one kv head": (8, 1, 64),
    "not grouped": (4, 4, 128), "width 96": (8, 4, 96), "width 80": (8, 4, 80),
    "width 256": (8, 4, 256), "Llama-3-70B": (64, 8, 128), "width 16": (4, 2, 16),
}  # fmt: skip


def items(dry: bool) -> list[Item]:
    if dry:
        return _dry_items()
    found = [
        _item(f"attention {format_name}, {name}", step, format_name)
        for format_name in _FORMATS
        for name, step in _STEPS.items()
    ]
    for name, (heads, kv_heads, head_dim) in _HEADS.items():
        for format_name in ("bf16", "float32", "bf16 on e4m3"):
            for what, step in (("mixed", _MIXED), ("sharing", _STEPS["64 decodes that share 512"])):
                shaped = replace(step, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
                said = f"attention {format_name}, {what}, {name}"
                found.append(_item(said, shaped, format_name, _OTHERS))
    return found


def _dry_items() -> list[Item]:
    small = Step((1, 1, 9), (1, 37, 12), heads=4, kv_heads=2, head_dim=16)
    sharing = Step((1,) * 18, (150,) * 18, 144, heads=4, kv_heads=2, head_dim=16)
    found = [_item(f"attention {name}, mixed", small, name) for name in _FORMATS]
    found.append(_item("attention bf16, window 5", replace(small, window=5), "bf16"))
    return [*found, _item("attention float32, sharing", sharing, "float32")]


def _item(name: str, step: Step, format_name: str, group: str | None = None) -> Item:
    dtype, kv_dtype = _FORMATS[format_name]
    own = _NARROW if kv_dtype.itemsize == 1 else _WIDE
    return Item(name, group or own, partial(_check, step, dtype, kv_dtype))


def _check(
    step: Step, dtype: torch.dtype, kv_dtype: torch.dtype, given: Surroundings
) -> dict[str, Any]:
    device = given.device.torch_device
    kv, metadata = filled(step, kv_dtype, device)
    shape = metadata.num_tokens, step.heads, step.head_dim
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(shape, generator=generator).to(dtype).to(device)
    plan = plan_attention(metadata, kv, step.heads, (step.window,))
    found = paged_attention(queries, kv, plan, step.head_dim**-0.5, step.window)
    again = paged_attention(queries, kv, plan, step.head_dim**-0.5, step.window)
    assert torch.equal(found, again), "computed again, it is not the same to the bit"
    return near(found, attention_in_float64(queries, kv, metadata, step.window))
