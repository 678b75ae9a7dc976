"""Vectors are the pooled hidden states of transformers, however the tokens were computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core import Engine
from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams
from engine.task import Embed, Pooling
from tests.support import prompt_references as reference
from tests.support.cpu_engine import engine_of
from tests.support.tiny_model import build_tiny_model, randomize

TOLERANCE = 1e-4
SYSTEM = tuple(b"Represent this sentence for the search of passages that are of use to it: ")
TEXTS = [SYSTEM + tuple(b"sentence %d" % (n * 977)) for n in range(6)]
TEXTS += [(65,), tuple(b"Once"), SYSTEM * 5, SYSTEM[:16], SYSTEM[:17]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    randomize(folder)
    return folder


def requests(texts: Sequence[tuple[int, ...]]) -> list[Request]:
    """Each text in all ways."""
    return [
        Request(f"{i} {pooling} {normalize}", text, task=Embed(pooling, normalize))
        for i, text in enumerate(texts)
        for pooling in Pooling
        for normalize in (True, False)
    ]


def answers(engine: Engine, added: Sequence[Request]) -> dict[str, RequestOutput]:
    return {output.request_id: output for output in engine.generate(added)}


def check(model: Any, request: Request, output: RequestOutput) -> None:
    assert isinstance(request.task, Embed)
    assert output.error_code is None
    assert output.finish_reason is FinishReason.STOP
    assert (output.text, output.completion_tokens) == ("", 0)
    assert output.prompt_tokens == len(request.token_ids)
    assert output.embedding is not None
    states = reference.hidden_states(model, request.token_ids)
    expected = states[-1] if request.task.pooling is Pooling.LAST else states.mean(0)
    if request.task.normalize:
        expected = expected / expected.norm()
    found = torch.tensor(output.embedding)
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
@pytest.mark.parametrize("budget", [512, 24, 7], ids=["whole", "chunked", "pieces"])
def test_a_tiny_model(folder: Path, tiny: Any, prefix_cache: bool, budget: int) -> None:
    engine = engine_of(folder, enable_prefix_caching=prefix_cache, max_num_batched_tokens=budget)
    for _ in range(2):  # the second time from a warm cache
        found = answers(engine, requests(TEXTS))
        for request in requests(TEXTS):
            check(tiny, request, found[request.request_id])
            if request.task == Embed(Pooling.MEAN):
                assert found[request.request_id].cached_tokens == 0
    assert (engine.stats.cached_tokens > 0) == prefix_cache


def test_smollm2_and_its_cosines() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.loading import resolve_model

    path = resolve_model("smollm2-135m").path
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = ["The cat sat on the mat.", "A cat was sitting on a mat.", "Interest rates rose again."]
    tokens = [tuple(tokenizer(text)["input_ids"]) for text in texts]
    found = answers(engine_of("smollm2-135m", max_num_batched_tokens=10), requests(tokens))
    for request in requests(tokens):
        check(model, request, found[request.request_id])
    cats, sitting, rates = (torch.tensor(found[f"{i} mean True"].embedding) for i in range(3))
    assert cats @ sitting > cats @ rates


def test_among_requests_that_generate(folder: Path, tiny: Any) -> None:
    engine = engine_of(folder, max_num_batched_tokens=32)
    rules = SamplingParams(9, ignore_eos=True)
    texts = [Request(f"text {i}", SYSTEM[i:], rules) for i in range(6)]
    alone = answers(engine_of(folder), texts)
    found = answers(engine, [*texts, *requests(TEXTS)])
    for request in requests(TEXTS):
        check(tiny, request, found[request.request_id])
    for text in texts:
        assert found[text.request_id].token_ids == alone[text.request_id].token_ids
        assert found[text.request_id].embedding is None


def test_steps_that_run_out_of_memory(
    folder: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(folder)
    execute = engine.runner.execute

    def short(batch: Any) -> Any:
        if batch.num_tokens > 10:
            raise MemoryError
        return execute(batch)

    monkeypatch.setattr(engine.runner, "execute", short)
    found = answers(engine, requests(TEXTS[:3]))
    for request in requests(TEXTS[:3]):
        check(tiny, request, found[request.request_id])
    assert engine.stats.out_of_memory > 0


def test_states_that_are_not_finite_are_that_rows_error(folder: Path) -> None:
    engine = engine_of(folder, max_num_batched_tokens=16)
    engine.loaded.model.embed_tokens[250] = torch.nan
    bad = [
        Request(pooling, (*SYSTEM[:20], 250, *SYSTEM), task=Embed(pooling)) for pooling in Pooling
    ]
    good = requests(TEXTS)
    found = answers(engine, [*bad, *good])
    for request in bad:
        assert found[request.request_id].error_code == "nan_logits"
        assert found[request.request_id].embedding is None
    assert all(found[request.request_id].embedding is not None for request in good)
