"""Formats of the KV cache: which are chosen, which refused, and what rounding costs."""

from __future__ import annotations

import pytest
import torch

from engine.config import KV_CACHE_DTYPES
from engine.errors import ConfigError
from engine.kv_cache import KVCache
from engine.kv_format import FORMATS, KVFormat, choose_kv_format
from engine.loading import load_model, resolve_model
from engine.runner import Runner
from tests.support.by_hand import ByHand
from tests.support.cpu_kernels import using, variants
from tests.support.gpu_kernels import serving

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.quick
def test_the_models_own_dtype_unless_told_otherwise() -> None:
    assert choose_kv_format("auto", torch.float32, CPU) == KVFormat(torch.float32, by_head=True)
    assert choose_kv_format("float16", torch.float32, CPU) == KVFormat(torch.float16, by_head=True)
    assert choose_kv_format("auto", torch.bfloat16, CPU) == KVFormat(torch.bfloat16)
    assert choose_kv_format("float16", torch.float16, CUDA) == KVFormat(torch.float16)
    with using("none"):
        assert choose_kv_format("auto", torch.float32, CPU) == KVFormat(torch.float32)


@pytest.mark.quick
@pytest.mark.parametrize("model", [torch.float32, torch.float16, torch.bfloat16])
def test_the_triton_kernels_read_every_format(model: torch.dtype) -> None:
    assert set(KV_CACHE_DTYPES) == {"auto", *FORMATS}
    for device, variant in ((CUDA, "all"), (CPU, "interpreter")):
        with serving(variant):
            assert choose_kv_format("auto", model, device) == KVFormat(model)
            for name, dtype in FORMATS.items():
                chosen = choose_kv_format(name, model, device)
                assert chosen == KVFormat(dtype)
                # Rows of another format are never adopted: the name is in the fingerprint.
                assert chosen.name == name


@pytest.mark.quick
def test_what_nothing_here_can_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kv_cache_dtype is bfloat16, .* float32 or float16"):
        choose_kv_format("bfloat16", torch.float32, CPU)
    refused = "a bfloat16 model on cuda:0 keeps its cache in bfloat16; name that"
    with serving("none"), pytest.raises(ConfigError, match=refused):
        choose_kv_format("float16", torch.bfloat16, CUDA)
    with pytest.raises(ConfigError, match=r"kv_cache_dtype is int8, .* float32 or float16"):
        choose_kv_format("int8", torch.float32, CPU)
    with using("none"), pytest.raises(ConfigError, match="keeps its cache in float32"):
        choose_kv_format("float16", torch.float32, CPU)


@pytest.mark.parametrize("kernels", variants())
def test_what_a_float16_cache_costs_the_real_model(kernels: str) -> None:
    """Logits of SmolLM2 after 300 tokens, the last of them one by one."""
    tokens = [(7 * i * i + 13 * i) % 40_000 + 100 for i in range(300)]
    found = {}
    with using(kernels):
        for name in ("float32", "float16"):
            loaded = load_model(resolve_model("smollm2-135m"), "float32", "cpu")
            kv_format = choose_kv_format(name, loaded.dtype, loaded.device)
            hand = ByHand(Runner(loaded, KVCache.create(loaded.config, 32, 16, kv_format, CPU)))
            parts = [(0, 250), *((at, at + 1) for at in range(250, 300))]
            found[name] = torch.cat(
                [hand.runner.logits(hand.batch(hand.part("a", tokens, *part))) for part in parts]
            )
    error = (found["float16"] - found["float32"]).abs()
    assert 0 < error.max() < 0.05
    assert error.mean() < 0.005
