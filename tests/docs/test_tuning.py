"""docs/howto/tuning.md: its formulas give what the engine computes."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine import memory
from engine.config import EngineConfig
from engine.kv_cache import KVCache, kv_block_bytes
from engine.kv_format import FORMATS, KVFormat
from engine.models.config import ModelConfig
from engine.models.read_config import read_model_config
from engine.request import Request
from engine.sampling_params import SamplingParams
from jobs.submission import Submission
from tests.support.fake_device import Simulation, config
from tests.support.markdown_pages import blocks
from tests.support.named_tests import page
from worker.options import WorkerOptions

pytestmark = pytest.mark.quick

PAGE = page("howto/tuning.md")
FORMULAS: dict[str, Any] = {}
for block in blocks("docs/howto/tuning.md"):
    if block.language == "python":
        exec(compile(block.code, str(block), "exec"), FORMULAS)

# What config.json of SmolLM2-135M says.
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 576,
    "intermediate_size": 1536, "max_position_embeddings": 8192, "model_type": "llama",
    "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05, "rope_theta": 100000, "tie_word_embeddings": True, "vocab_size": 49152,
}  # fmt: skip


@pytest.fixture
def smollm2(tmp_path: Path) -> ModelConfig:
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    return read_model_config(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_a_block_has_so_many_bytes(smollm2: ModelConfig, name: str, block_size: int) -> None:
    model = dataclasses.replace(smollm2, num_layers=3, head_dim=32)
    dtype = FORMATS[name]
    scale = 4 if dtype.itemsize == 1 else 0
    computed = FORMULAS["block_bytes"](3, 3, 32, dtype.itemsize, scale, block_size)
    assert computed == kv_block_bytes(model, block_size, dtype)
    assert computed == KVCache.create(model, 2, block_size, KVFormat(dtype), "cpu").block_bytes


def test_the_line_of_the_log_is_that_of_the_model(
    smollm2: ModelConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free = SimpleNamespace(available=64 << 30)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(memory, "cgroup_headroom", lambda root: None)
    loaded: Any = SimpleNamespace(config=smollm2, device=torch.device("cpu"))
    with caplog.at_level(logging.INFO, "pagemill.engine"):
        found = memory.size_kv_pool(
            EngineConfig("smollm2-135m"), loaded, KVFormat(torch.float32),
            max_model_len=smollm2.max_model_len, max_num_batched_tokens=512,
        )  # fmt: skip
    (line,) = caplog.messages
    assert f"```text\n{line}\n```" in PAGE
    assert found == FORMULAS["blocks"](4 << 30, FORMULAS["small"])
    assert f"# {found}\n" in PAGE


@pytest.mark.parametrize(
    ("num_blocks", "prompt", "answer", "shared", "block_size"),
    [
        (100, 100, 60, 0, 16), (100, 100, 60, 64, 16), (200, 50, 50, 32, 8), (64, 30, 100, 0, 16),
        (150, 100, 50, 80, 16), (101, 77, 33, 45, 8),
    ],
)  # fmt: skip
def test_so_many_rows_run_without_a_preemption_and_one_more_does_not(
    num_blocks: int, prompt: int, answer: int, shared: int, block_size: int
) -> None:
    places = FORMULAS["rows_at_once"](num_blocks, prompt, answer, shared, block_size)
    for more in (0, 1):
        # As on a GPU, where rows begin that may not all come to their longest end.
        simulation = Simulation(
            config(
                num_blocks=num_blocks, block_size=block_size, max_num_seqs=places + more,
                max_num_batched_tokens=1 << 20, max_model_len=1 << 12, reserve_growth=False,
            )
        )  # fmt: skip
        simulation.check_every_step = False
        for row in range(3 * places):
            own = (1000 * (row + 1) + place for place in range(prompt - shared))
            params = SamplingParams(max_tokens=answer, ignore_eos=True)
            simulation.add(Request(str(row), (*range(shared), *own), params))
        most = 0
        while simulation.scheduler.has_unfinished:
            simulation.step()
            most = max(most, simulation.scheduler.num_running)
        assert most == places + more
        assert (simulation.scheduler.stats.preemptions > 0) == bool(more)


def test_defaults_are_those_of_the_program() -> None:
    engine, worker = EngineConfig("m"), WorkerOptions.parse(["--model", "m"], {})
    rows = Submission(input="-", model="m").chunk_rows
    for said in (
        f"`--max-num-seqs` ({engine.max_num_seqs})",
        f"`--block-size` ({engine.block_size})",
        f"`--gpu-memory-utilization` ({engine.gpu_memory_utilization:.2f})",
        f"`--concurrency` ({worker.concurrency}) chunks of at most `--chunk-rows` ({rows}) rows",
        f"so {worker.concurrency * rows} rows by default",
        f"{engine.cpu_kv_cache_bytes >> 30} GiB, but at most half",
    ):
        assert said in PAGE, said
