"""Steps of decodes as graphs: what they answer, which steps they take, and what the host sends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from engine import decode_graphs
from engine.batch import Batch
from engine.config import EngineConfig
from engine.core import Engine
from engine.decode_graphs import ladder, wants_graphs
from engine.errors import ConfigError
from engine.request import Request, RequestOutput
from engine.runner import Runner
from engine.sampling_params import SamplingParams
from kernels.gpu.attention_limits import TileKind
from kernels.packed_arrays import PackedArrays
from tests.support.called_again import CalledAgain
from tests.support.cpu_engine import engine_of
from tests.support.interpreted_gpu import interpreted_gpu
from tests.support.tiny_model import build_tiny_model

SEQS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(
        tmp_path_factory.mktemp("tiny"), num_hidden_layers=2, max_position_embeddings=1024
    )


@pytest.fixture
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(decode_graphs, "CudaCapture", CalledAgain)
    with interpreted_gpu():
        yield


interpreted = pytest.mark.usefixtures("_interpreted")


def tokens(count: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 256, (count,), generator=generator).tolist())


def answered(engine: Engine, requests: list[Request]) -> list[RequestOutput]:
    return sorted(engine.generate(requests), key=lambda output: output.request_id)


def engine_with(folder: Path, graphs: bool, **settings: Any) -> Engine:
    return engine_of(
        folder, max_num_seqs=SEQS, max_num_batched_tokens=512, cuda_graphs=graphs, **settings
    )


@pytest.mark.quick
@pytest.mark.parametrize("most", [1, 2, 3, 8, 9, 64, 100, 256, 1000])
def test_the_ladder_holds_every_step_and_pads_little(most: int) -> None:
    sizes = ladder(most)

    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] >= most
    assert len(sizes) == 1 or sizes[-2] < most
    for smaller, size in pairwise(sizes):
        assert size - smaller <= max(8, smaller)
        assert size <= 8 or size - smaller <= max(8, smaller / 3)


@pytest.mark.quick
def test_graphs_that_no_kernel_can_be_captured_for_are_refused() -> None:
    cpu, asked = torch.device("cpu"), EngineConfig("m", cuda_graphs=True)

    assert not wants_graphs(EngineConfig("m"), cpu)
    assert not wants_graphs(EngineConfig("m", cuda_graphs=False), cpu)
    with pytest.raises(ConfigError, match=r"cuda_graphs is on, but .* do not serve cpu"):
        wants_graphs(asked, cpu)


WORKLOADS: dict[TileKind, tuple[int, ...]] = {
    TileKind.ALONE: (5, 40, 17, 1, 90),
    TileKind.SPLIT: (600, 30, 5),
    TileKind.SHARED: (-562, -563, -566, -575, -577),  # these begin with the same tokens
}


@interpreted
@pytest.mark.parametrize("kind", TileKind)
def test_every_kind_of_attention_answers_as_without_graphs(folder: Path, kind: TileKind) -> None:
    prompts = [
        tokens(560, 0) + tokens(-length - 560, -length) if length < 0 else tokens(length, length)
        for length in WORKLOADS[kind]
    ]
    requests = [
        Request(str(i), prompt, SamplingParams(max_tokens=3 + i, ignore_eos=True, logprobs=1))
        for i, prompt in enumerate(prompts)
    ]
    engine = engine_with(folder, True)

    found = answered(engine, requests)

    expected = answered(engine_with(folder, False), requests)
    assert [o.token_ids for o in found] == [o.token_ids for o in expected]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(values(ours), values(theirs), atol=1e-5, rtol=1e-5)
    captured = list(TileKind) * len(ladder(SEQS))
    replayed = CalledAgain.replayed
    assert len(replayed) == len(captured)
    assert any(count for count, of in zip(replayed, captured, strict=True) if of is kind)


def values(output: RequestOutput) -> torch.Tensor:
    assert output.logprobs is not None
    return torch.tensor([token.logprob for token in output.logprobs])


@interpreted
def test_rows_with_rules_forks_and_pending_tokens_answer_as_without_graphs(folder: Path) -> None:
    drawn = SamplingParams(
        max_tokens=6, temperature=0.8, top_p=0.9, top_k=40, repetition_penalty=1.2, seed=3,
        ignore_eos=True,
    )  # fmt: skip
    greedy = SamplingParams(max_tokens=5, ignore_eos=True)
    requests = [
        *(Request(f"n{i}", tokens(20, 1), drawn, sample_of="n", sample_index=i) for i in range(3)),
        Request("greedy", tokens(33, 2), greedy),
        Request("late", tokens(7, 3), greedy),
    ]

    found = answered(engine_with(folder, True, overlap=True), requests)

    assert sum(CalledAgain.replayed) >= 4
    expected = answered(engine_with(folder, False, overlap=False), requests)
    assert [o.token_ids for o in found] == [o.token_ids for o in expected]
    assert len({o.token_ids for o in found[-3:]}) == 3


@interpreted
@pytest.mark.parametrize("graphs", [True, False])
def test_a_greedy_step_sends_the_device_one_copy(folder: Path, graphs: bool) -> None:
    """Plan, tables, slots and tokens go together; nothing else of a step goes at all."""
    engine = engine_with(folder, graphs, overlap=True)
    requests = [
        Request(str(i), tokens(10 + i, i), SamplingParams(max_tokens=5, ignore_eos=True))
        for i in range(4)
    ]
    steps: list[Batch] = []
    launch, upload = Runner.launch, PackedArrays.upload

    def launched(self: Runner, batch: Batch, *before: Any) -> Any:
        steps.append(batch)
        return launch(self, batch, *before)

    with (
        mock.patch.object(Runner, "launch", launched),
        mock.patch.object(PackedArrays, "upload", autospec=True, side_effect=upload) as uploads,
        mock.patch("kernels.host_tensors.integers", side_effect=AssertionError("a second copy")),
    ):
        answered(engine, requests)

    assert len(steps) >= 5
    assert uploads.call_count == len(steps)


@interpreted
def test_the_log_says_how_long_the_capture_took(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="pagemill.engine"):
        engine_with(folder, True)

    record = next(r for r in caplog.records if r.message.startswith("CUDA graphs"))
    assert record.graphs == len(TileKind) * len(ladder(SEQS))
    assert record.seconds > 0
