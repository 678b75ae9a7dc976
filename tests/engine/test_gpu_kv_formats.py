"""The engine with each format of the KV cache, its kernels in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from engine.blocks import BlockCopy
from engine.kv_cache import KVCache
from engine.kv_format import FORMATS, KVFormat, choose_kv_format
from engine.loading import load_model, resolve_model
from engine.runner import Runner
from engine.swap_pool import SwapPool
from tests.support.by_hand import ByHand
from tests.support.interpreted_gpu import interpreted_gpu
from tests.support.tiny_model import build_tiny_model

# What rounding keys and values may move a logit by: of this model, whose logits go up to 4.
BOUNDS = {
    "float32": 2e-5, "float16": 0.01, "bfloat16": 0.05, "int8": 0.1, "fp8_e4m3": 0.5,
    "fp8_e5m2": 0.8,
}  # fmt: skip
TOKENS = [(7 * i * i + 13 * i) % 250 for i in range(70)]


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with interpreted_gpu():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


def logits_of(folder: Path, kv_format: KVFormat) -> torch.Tensor:
    """Of a prompt in two chunks, of decodes, and of forks in copied and in swapped blocks."""
    loaded = load_model(resolve_model(str(folder)), "float32", "cpu")
    cache = KVCache.create(loaded.config, 24, 8, kv_format, "cpu")
    for part in cache.storage.parts():
        part.fill_(-1)  # NaN, where the format has one, and as a scale
    hand = ByHand(Runner(loaded, cache))
    ends = (0, 37, 66, 67, 68)
    found = [
        hand.runner.logits(hand.batch(hand.part("itself", TOKENS, start, end)))
        for start, end in pairwise(ends)
    ]
    blocks, moved = hand._tables["itself"], [hand._free.pop() for _ in range(9)]
    hand._tables["copied"] = (*blocks[:-1], hand._free.pop())
    cache.copy_blocks([BlockCopy(blocks[-1], hand._tables["copied"][-1])])
    pool = SwapPool(cache, 9)
    pool.swap_out([BlockCopy(block, host) for host, block in enumerate(blocks)])
    pool.swap_in([BlockCopy(host, block) for host, block in enumerate(moved)])
    hand._tables["swapped"] = tuple(moved)
    forks = [hand.part(name, TOKENS, 68, 69) for name in ("itself", "copied", "swapped")]
    alike = hand.runner.logits(hand.batch(*forks))
    for other in alike[1:]:
        torch.testing.assert_close(other, alike[0], rtol=0, atol=1e-4)
    return torch.cat([*found, alike])


@pytest.fixture(scope="module")
def exact(folder: Path) -> torch.Tensor:
    return logits_of(folder, KVFormat(torch.float32, by_head=True))


@pytest.mark.parametrize("name", FORMATS)
def test_logits_are_those_of_the_exact_cache_but_for_the_rounding(
    name: str, folder: Path, exact: torch.Tensor
) -> None:
    kv_format = choose_kv_format(name, torch.float32, torch.device("cpu"))
    error = (logits_of(folder, kv_format) - exact).abs().max().item()
    assert error < BOUNDS[name]
    if name != "float32":
        assert error > 1e-6, "the cache has another format"
