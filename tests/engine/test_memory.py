"""The size of the KV pool: which bound wins, what is logged, what is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine import memory
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.host_memory import cgroup_headroom
from engine.kv_cache import KVCache, kv_block_bytes
from engine.kv_format import KVFormat
from engine.loading import load_model, resolve_model
from engine.loading.loaded import LoadedModel
from engine.runner import Runner
from engine.sampling_params import MAX_LOGPROBS
from kernels.kv_quantization import QUANTIZED
from tests.support.tiny_model import build_tiny_model

pytestmark = pytest.mark.quick

# 2 layers x (keys, values) x 16 tokens x 2 heads x 8 numbers x 4 bytes
BLOCK_BYTES = 2 * 2 * 16 * 2 * 8 * 4


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    return load_model(resolve_model(str(folder)), "float32", "cpu")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A host with memory of our choice."""
    host = SimpleNamespace(available=1 << 40, headroom=None)
    monkeypatch.setattr(
        memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=host.available)
    )
    monkeypatch.setattr(memory, "cgroup_headroom", lambda root: host.headroom)
    return host


def size(loaded: LoadedModel, max_model_len: int = 64, **settings: Any) -> int:
    config = EngineConfig(model="tiny", **settings)
    return memory.size_kv_pool(
        config,
        loaded,
        KVFormat(loaded.dtype),
        max_model_len=max_model_len,
        max_num_batched_tokens=512,
    )


def test_block_bytes_are_what_a_cache_allocates(loaded: LoadedModel) -> None:
    assert kv_block_bytes(loaded.config, 16, torch.float32) == BLOCK_BYTES
    cache = KVCache.create(loaded.config, 5, 16, KVFormat(torch.float32), "cpu")
    assert sum(part.nbytes for part in cache.storage.parts()) == 5 * BLOCK_BYTES
    assert cache.block_bytes == BLOCK_BYTES
    assert kv_block_bytes(loaded.config, 32, torch.bfloat16) == BLOCK_BYTES


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_block_bytes_of_8_bits_have_the_scales(loaded: LoadedModel, dtype: torch.dtype) -> None:
    expected = BLOCK_BYTES // 4 + 2 * 2 * 16 * 2 * 4
    assert kv_block_bytes(loaded.config, 16, dtype) == expected
    cache = KVCache.create(loaded.config, 5, 16, KVFormat(dtype), "cpu")
    assert cache.block_bytes == expected
    assert sum(part.nbytes for part in cache.storage.parts()) == 5 * expected
    empty = memory.one_block(loaded, 16, KVFormat(dtype))
    assert all((part == 0).all() for part in empty.storage.parts())


def test_the_smallest_bound_wins(loaded: LoadedModel, host: SimpleNamespace) -> None:
    bound = 1000 * BLOCK_BYTES
    assert size(loaded, cpu_kv_cache_bytes=bound) == 1000
    host.available = 900 * BLOCK_BYTES
    assert size(loaded, cpu_kv_cache_bytes=bound) == 450
    host.headroom = 30 * BLOCK_BYTES
    assert size(loaded, cpu_kv_cache_bytes=bound) == 15
    assert size(loaded, cpu_kv_cache_bytes=bound, num_blocks=7) == 7


def test_the_log_line(
    loaded: LoadedModel, host: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pagemill.engine"):
        size(loaded, num_blocks=131_072)
    assert caplog.messages == ["KV cache: 131,072 blocks, 2,097,152 tokens, 0.50 GiB, float32"]
    fields = vars(caplog.records[0])
    assert (fields["num_blocks"], fields["tokens"]) == (131_072, 2_097_152)
    assert fields["bytes"] == 131_072 * BLOCK_BYTES


def test_less_than_one_sequence_is_warned_of(
    loaded: LoadedModel, host: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    assert size(loaded, num_blocks=4, max_model_len=64) == 4
    assert not caplog.messages
    assert size(loaded, num_blocks=4, max_model_len=65) == 4
    assert "holds 64 tokens, fewer than one sequence of max_model_len 65" in caplog.text


def test_no_block_at_all_is_refused(loaded: LoadedModel, host: SimpleNamespace) -> None:
    host.available = BLOCK_BYTES
    with pytest.raises(ConfigError, match="raise cpu_kv_cache_bytes, free memory"):
        size(loaded)


@pytest.mark.parametrize("graphs", [False, True])
def test_a_gpu_keeps_weights_and_the_largest_step_free(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, graphs: bool
) -> None:
    total, weights, before = 10_000, 3_000, 500
    peaks = {"prefill": 1_700, "decodes": 900, "scores": 1_600, "mean": 1_500}
    left = iter(peaks.values())
    calls: list[str] = []

    class FakeCuda:
        empty_cache = staticmethod(lambda: calls.append("empty"))
        reset_peak_memory_stats = staticmethod(lambda device: calls.append("reset"))
        synchronize = staticmethod(lambda device: calls.append("synchronize"))
        memory_allocated = staticmethod(lambda device: before)
        max_memory_allocated = staticmethod(lambda device: next(left))
        mem_get_info = staticmethod(lambda device: (total - weights, total))

    monkeypatch.setattr(memory.torch, "cuda", FakeCuda)
    monkeypatch.setattr(memory, "wants_graphs", lambda config, device: graphs)
    config = EngineConfig(model="tiny", max_num_seqs=3)
    free = memory._gpu_bytes(
        config, loaded, KVFormat(loaded.dtype), max_model_len=100, max_num_batched_tokens=40
    )
    # Graphs keep what a step of decodes needs for themselves.
    needed = peaks["prefill"] - before + graphs * (peaks["decodes"] - before)
    assert free == 9_000 - weights - needed
    assert calls == ["empty", *["reset", "synchronize"] * 4, "empty"]


@pytest.mark.parametrize(("seqs", "length", "budget"), [(3, 100, 40), (300, 50, 64), (2, 33, 500)])
def test_the_largest_steps_run_in_a_cache_of_one_block(
    loaded: LoadedModel, seqs: int, length: int, budget: int
) -> None:
    prefill, decodes = memory.largest_steps(16, seqs, length, budget)
    assert prefill.num_tokens == min(length, budget)
    assert prefill.sequences[0].end == length
    assert decodes.num_tokens == min(seqs, budget)
    assert {s.end for s in decodes.sequences} == {length}
    runner = Runner(loaded, memory.one_block(loaded, 16, KVFormat(loaded.dtype)))
    assert len(runner.execute(prefill)) == 1
    rows = runner.execute(decodes)
    assert len(rows) == min(seqs, budget)
    # Log probabilities are computed in it, at their most and with a copy of the asking rows.
    asked = [row.logprobs for row in rows]
    assert asked[0] is None
    assert all(len(found.top_ids) == MAX_LOGPROBS for found in asked[1:])


@pytest.fixture
def nan_in_fresh_memory() -> Iterator[None]:
    """What torch allocates and nobody has written is NaN."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("nan_in_fresh_memory")
@pytest.mark.parametrize(("seqs", "length", "budget"), [(3, 100, 40), (300, 50, 64), (2, 33, 500)])
def test_steps_about_prompts_run_in_a_cache_of_one_block(
    loaded: LoadedModel, seqs: int, length: int, budget: int
) -> None:
    steps = memory.largest_steps(16, seqs, length, budget)
    scored, pooled = memory.prompt_steps(steps, budget)
    runner = Runner(loaded, memory.one_block(loaded, 16, KVFormat(loaded.dtype)))
    chunk = scored.sequences[-1]
    assert scored.num_tokens == min(budget, len(scored.sequences) - 1 + length)
    found = runner.execute(scored)
    assert len(found) == len(scored.sequences)
    assert found[-1].prompt is not None
    assert len(found[-1].prompt.top_ids) == MAX_LOGPROBS * len(chunk.token_ids)
    piece = runner.execute(pooled)[-1].prompt
    assert piece is not None
    assert len(piece.values) == loaded.config.hidden_size


# --- control groups


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_no_control_groups(tmp_path: Path) -> None:
    assert cgroup_headroom(tmp_path) is None


def test_version_2_the_tightest_group_wins_and_cache_counts_as_free(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    write(tmp_path, {
        "proc/self/cgroup": "0::/pod/worker\n",
        f"{top}/memory.max": "max\n",
        f"{top}/pod/memory.max": "1000\n",
        f"{top}/pod/memory.current": "700\n",
        f"{top}/pod/memory.stat": "anon 400\ninactive_file 250\n",
        f"{top}/pod/worker/memory.max": "800\n",
        f"{top}/pod/worker/memory.current": "100\n",
        f"{top}/pod/worker/memory.stat": "anon 100\n",
    })  # fmt: skip
    assert cgroup_headroom(tmp_path) == 550
    (tmp_path / top / "pod/memory.max").write_text("max")
    assert cgroup_headroom(tmp_path) == 700


def test_version_2_inside_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    write(tmp_path, {
        "proc/self/cgroup": "0::/../../docker/abc\n",
        "sys/fs/cgroup/memory.max": "1000",
        "sys/fs/cgroup/memory.current": "1200",
        "sys/fs/cgroup/memory.stat": "inactive_file 10\n",
    })  # fmt: skip
    assert cgroup_headroom(tmp_path) == 0


def test_version_1(tmp_path: Path) -> None:
    top = "sys/fs/cgroup/memory"
    write(tmp_path, {
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n3:memory:/docker/abc\n",
        f"{top}/memory.limit_in_bytes": "5000",
        f"{top}/memory.usage_in_bytes": "2000",
        f"{top}/memory.stat": "total_inactive_file 500\n",
    })  # fmt: skip
    assert cgroup_headroom(tmp_path) == 3500
