"""The engine as it runs on a GPU, with its kernels in Triton's interpreter.

Everything but the device is what a GPU gets: the plan of attention, the packed inputs, graphs of
decodes (their kernels are called again instead of being replayed), and every operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import decode_graphs
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.support.called_again import CalledAgain
from tests.support.cpu_engine import engine_of
from tests.support.golden import Reference, near_ties, references
from tests.support.interpreted_gpu import interpreted_gpu
from tests.support.tiny_families import build_family

MAX_TOKENS = 6
NAMES = ("llama grouped", "llama own head_dim", "qwen3", "mistral window")
SHARED = [(11 * i + 3) % 250 for i in range(150)]
PROMPTS = [
    [*SHARED, 7, 8], [*SHARED, 9], [*SHARED[:64], 1, 2, 3], [5], [(7 * i) % 250 for i in range(40)],
]  # fmt: skip


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with interpreted_gpu():
        yield


@pytest.fixture(scope="module", params=NAMES)
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Reference]]:
    folder = tmp_path_factory.mktemp("family")
    model = build_family(request.param, folder)
    return folder, references(model, PROMPTS, MAX_TOKENS, eos=None)


def answers(folder: Path, **settings: Any) -> list[tuple[int, ...]]:
    engine = engine_of(folder, max_num_batched_tokens=64, max_num_seqs=8, **settings)
    rules = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True)
    outputs = engine.generate(Request(str(i), tuple(p), rules) for i, p in enumerate(PROMPTS))
    found = {output.request_id: tuple(output.token_ids) for output in outputs}
    return [found[str(i)] for i in range(len(PROMPTS))]


@pytest.mark.parametrize(
    "settings",
    [{}, {"overlap": True, "block_size": 8}, {"cuda_graphs": True, "overlap": True}],
    ids=["one step at a time", "overlapped", "graphs"],
)
def test_answers_equal_those_of_transformers(
    family: tuple[Path, list[Reference]],
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decode_graphs, "CudaCapture", CalledAgain)
    folder, expected = family

    near_ties(expected, answers(folder, **settings))
