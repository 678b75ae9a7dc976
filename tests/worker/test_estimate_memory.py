"""What `worker.estimate_memory` says of a model's needs, against the engine that loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import GIB, EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from engine.kv_format import KVFormat
from engine.loading import resolve_model
from engine.request import Request
from tests.support.tiny_model import build_tiny_model
from worker import estimate_memory
from worker.estimate_memory import longest, measure, memory_json
from worker.estimate_rows import RowTally
from worker.requests import Prepared, PreparedRow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"), tie_word_embeddings=True)


def config(folder: Path, **more: Any) -> EngineConfig:
    return EngineConfig(model=str(folder), **{"device": "cpu", **more})


def tally(*sizes: int) -> RowTally:
    """Rows of so many tokens, each with an answer of up to 512."""
    counts = RowTally(max_model_len=2048, block_size=16, max_num_seqs=2)
    rows = tuple(
        PreparedRow(i, 1, (Request(f"r{i}", tuple(range(size))),)) for i, size in enumerate(sizes)
    )
    counts.add(Prepared(rows, ()), {})
    return counts


def told(settings: EngineConfig, counts: RowTally) -> dict[str, Any]:
    return memory_json(settings, measure(settings, resolve_model(settings.model)), counts)


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "float16"])
def test_an_engine_has_what_was_said(folder: Path, kv_cache_dtype: str) -> None:
    settings = config(folder, kv_cache_dtype=kv_cache_dtype, cpu_kv_cache_bytes=1 << 20)

    found = told(settings, tally(100))

    engine = Engine(settings)
    parameters = sum(p.numel() for _, p in engine.loaded.model.checkpoint_tensors())
    assert found["weights"] == {
        "parameters": parameters, "dtype": "float32", "bytes": 4 * parameters,
    }  # fmt: skip
    assert found["kv"]["block_bytes"] == engine.kv_cache.block_bytes
    assert found["kv"]["dtype"] == engine.kv_cache.format.name
    assert found["machine"]["kv_blocks"] == engine.kv_cache.num_blocks


def test_rows_that_do_not_fit_are_counted(folder: Path) -> None:
    """611, 811 and 1,111 tokens are stored: 39, 51 and 70 blocks."""
    counts = tally(100, 300, 600)

    found = told(config(folder, num_blocks=60), counts)

    assert found["kv"]["row_blocks"] == {"median": 51, "max": 70}
    assert found["kv"]["rows_at_once"] == 3  # of 256 that may run
    assert found["kv"]["blocks_at_once"] == {"mean": 160, "max": 51 + 70}  # the largest two
    assert found["fits"] == {
        "weights": True, "every_row": False, "rows_over": 1, "all_at_once": False,
    }  # fmt: skip
    assert told(config(folder, num_blocks=160), counts)["fits"] == {
        "weights": True, "every_row": True, "rows_over": 0, "all_at_once": True,
    }  # fmt: skip


def test_no_longer_sequence_than_the_model_takes(folder: Path) -> None:
    model = measure(config(folder), resolve_model(str(folder))).config
    assert longest(config(folder), model) == 2048
    assert longest(config(folder, max_model_len=300), model) == 300
    with pytest.raises(ConfigError, match="goes to 2048 tokens"):
        longest(config(folder, max_model_len=3000), model)


def test_on_a_gpu_it_is_the_share_that_the_engine_may_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 80 GiB 0.9 may be used, and others use 8."""
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(estimate_memory, "choose_device", lambda _: gpu)
    monkeypatch.setattr(
        estimate_memory, "choose_kv_format", lambda *_: KVFormat(torch.float8_e4m3fn)
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (72 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA X")
    settings = config(folder, device="cuda", dtype="bfloat16")

    found = told(settings, tally(100))

    machine, weights, kv = found["machine"], found["weights"], found["kv"]
    assert (machine["device"], machine["name"]) == ("cuda:0", "NVIDIA X")
    assert (machine["usable_bytes"], machine["total_bytes"]) == (64 * GIB, 80 * GIB)
    assert weights["bytes"] == 2 * weights["parameters"]
    # Two layers of two KV heads, each with 8 numbers and a scale, of keys and of values.
    assert kv["bytes_per_token"] == 2 * 2 * 2 * (8 + 4)
    assert machine["kv_blocks"] == (64 * GIB - weights["bytes"]) // kv["block_bytes"]
    full = (5 * GIB, 80 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: full)
    assert told(settings, tally(100))["fits"]["weights"] is False
