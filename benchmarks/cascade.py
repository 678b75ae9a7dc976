"""From how many shared tokens on sequences should attend to their prefix together.

    python -m benchmarks.cascade [--save]

Decodes of 64 sequences in groups that share a prefix, a layer's attention with the cascade and
without it, in turn, over the blocks of several layers so that no cache helps. SmolLM2's shape.
Times are medians in milliseconds; a ratio below 1 says that attending together pays.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from typing import Any
from unittest import mock

import torch

from benchmarks.surroundings import save, surroundings
from kernels import tiled_attention
from kernels.attention_metadata import AttentionMetadata
from kernels.attention_plan import plan_attention
from kernels.cpu.library import variant
from kernels.kv_layout import LayerKV
from kernels.paged_attention import paged_attention

SEQUENCES, OWN_TOKENS, BLOCK_SIZE = 64, 40, 16
KV_HEADS, HEADS, HEAD_DIM, LAYERS, ROUNDS = 3, 9, 64, 6, 9
MEMBERS, SHARED = (2, 4, 16, 64), (16, 32, 64, 128, 256, 512)


def tables(members: int, shared: int) -> tuple[list[tuple[int, ...]], int]:
    """Block tables of all sequences, `members` of which share each prefix; and the blocks used."""
    own = -(-OWN_TOKENS // BLOCK_SIZE)
    prefixes = SEQUENCES // members
    blocks = list(range(prefixes * (shared // BLOCK_SIZE) + SEQUENCES * own))
    random.Random(0).shuffle(blocks)
    taken = iter(blocks)
    made = []
    for _ in range(prefixes):
        prefix = [next(taken) for _ in range(shared // BLOCK_SIZE)]
        made += [(*prefix, *(next(taken) for _ in range(own))) for _ in range(members)]
    return made, len(blocks)


def measure(members: int, shared: int, dtype: torch.dtype) -> dict[str, Any]:
    made, num_blocks = tables(members, shared)
    layers = [
        LayerKV.allocate(num_blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM, dtype=dtype, by_head=True)
        for _ in range(LAYERS)
    ]
    for layer in layers:
        layer.keys.normal_()
        layer.values.normal_()
    metadata = AttentionMetadata.build(
        [1] * SEQUENCES, [shared + OWN_TOKENS] * SEQUENCES, made, BLOCK_SIZE, torch.device("cpu")
    )
    queries = torch.randn(SEQUENCES, HEADS, HEAD_DIM)
    plans = {}
    for name, least in (("together", 1), ("apart", 1 << 30)):
        with mock.patch.object(tiled_attention, "_MIN_SHARED_TOKENS", least):
            plans[name] = plan_attention(metadata, layers[0], HEADS, (None,))
    times: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(ROUNDS):
        for name, plan in plans.items():
            began = time.perf_counter()
            for layer in layers:
                paged_attention(queries, layer, plan, HEAD_DIM**-0.5)
            times[name].append((time.perf_counter() - began) * 1e3 / LAYERS)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "members": members,
        "shared_tokens": shared,
        "kv_dtype": str(dtype).removeprefix("torch."),
        **{f"{name}_ms": round(value, 3) for name, value in medians.items()},
        "ratio": round(medians["together"] / medians["apart"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    report = {
        "benchmark": "cascade", **surroundings("torch"), "kernels": variant(),
        "threads": options.threads, "used_from_tokens": tiled_attention._MIN_SHARED_TOKENS,
        "cases": [],
    }  # fmt: skip
    for dtype in (torch.float32, torch.float16):
        for members in MEMBERS:
            for shared in SHARED:
                report["cases"].append(measure(members, shared, dtype))
                print(report["cases"][-1], file=sys.stderr)
    save(report, to_file=options.save)


if __name__ == "__main__":
    main()
