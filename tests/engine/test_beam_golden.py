"""Beam search equals that of transformers: the same answers, in the same order.

Tiny random models, many searches of all kinds in one batch with greedy and sampled rows, for
every block size, with the prefix cache and without it, and with a pool so small that searches
are preempted.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.core import Engine
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.support.beam_references import beams_of_transformers
from tests.support.tiny_families import build_family

MAX_TOKENS = 12
FAMILIES = ["llama grouped", "qwen2", "qwen3", "mistral window"]
WIDTHS, PENALTIES = (2, 3, 4, 8), (0.0, 0.5, 1.0, 2.0)
EARLY: tuple[bool | str, ...] = (False, True, "never")
LENGTHS = (1, 15, 16, 37, 70)
SETTINGS: list[dict[str, Any]] = [
    {"block_size": 8, "num_blocks": 34, "max_model_len": 128},
    {"block_size": 16},
    {"block_size": 32, "enable_prefix_caching": False},
]


@dataclass(frozen=True)
class Search:
    prompt: tuple[int, ...]
    params: SamplingParams
    expected: tuple[tuple[tuple[int, ...], float], ...]


def searches(model: Any) -> list[Search]:
    """Every width with every penalty; kinds of early stopping and of stop tokens in turn."""
    generator = torch.Generator().manual_seed(3)
    prompts = [
        tuple(torch.randint(0, 256, (length,), generator=generator).tolist()) for length in LENGTHS
    ]
    # Stop tokens that are likely: some of those that a search without any finds.
    free = SamplingParams(max_tokens=MAX_TOKENS, num_beams=4, num_return_sequences=4)
    often = sorted(
        {
            t
            for p in prompts
            for tokens, _ in beams_of_transformers(model, p, free)
            for t in tokens[3:7]
        }
    )
    stops = ((), tuple(often[:1]), tuple(often[1:4]), tuple(often[::3][:8]))
    kinds = itertools.cycle(itertools.product(EARLY, stops))
    found = []
    for number, (width, penalty) in enumerate(itertools.product(WIDTHS, PENALTIES)):
        for prompt in prompts[number % 2 :: 2]:
            early, stop = next(kinds)
            params = SamplingParams(
                max_tokens=MAX_TOKENS, ignore_eos=True, stop_token_ids=stop, num_beams=width,
                num_return_sequences=width, length_penalty=penalty, early_stopping=early,
            )  # fmt: skip
            found.append(
                Search(prompt, params, tuple(beams_of_transformers(model, prompt, params)))
            )
    return found


def others(asked: list[Search]) -> list[Request]:
    """Rows of other kinds, which share blocks with the searches."""
    greedy = SamplingParams(40, ignore_eos=True, stop_token_ids=(1 << 30,))
    sampled = SamplingParams(20, temperature=1.0, ignore_eos=True, logprobs=2)
    prompts = [search.prompt for search in asked[:5]]
    return [
        *(Request(f"greedy{i}", prompt, greedy) for i, prompt in enumerate(prompts)),
        *(Request(f"s{i}", prompts[4], sampled, 0, i, sample_of="s") for i in range(3)),
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_searches_equal_those_of_transformers(family: str, tmp_path: Path) -> None:
    asked = searches(build_family(family, tmp_path))
    ended = {len(tokens) < MAX_TOKENS for s in asked for tokens, _ in s.expected}
    assert ended == {True, False}
    for settings in SETTINGS:
        engine = Engine(
            EngineConfig(
                **{
                    "model": str(tmp_path), "device": "cpu", "dtype": "float32",
                    "num_blocks": 512, "max_num_batched_tokens": 64, "max_num_seqs": 24,
                    "check_invariants": True, **settings,
                }
            )
        )  # fmt: skip
        requests = [Request(str(i), s.prompt, s.params) for i, s in enumerate(asked)]
        mixed = [r for pair in itertools.zip_longest(requests, others(asked)) for r in pair if r]
        outputs = {output.request_id: output for output in engine.generate(mixed)}
        assert len(outputs) == len(mixed)
        for number, search in enumerate(asked):
            output = outputs[str(number)]
            where = f"{settings}, {search.params}, prompt of {len(search.prompt)}"
            assert [b.token_ids for b in output.beams] == [t for t, _ in search.expected], where
            scores = [score for _, score in search.expected]
            assert [b.score for b in output.beams] == pytest.approx(scores, abs=1e-4), where
            for beam in output.beams:
                stopped = beam.token_ids[-1] in search.params.stop_token_ids
                assert beam.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
            assert output.token_ids == output.beams[0].token_ids
            assert output.completion_tokens == sum(len(b.token_ids) for b in output.beams)
        assert engine.stats.blocks_used == 0
        assert (engine.stats.preemptions > 0) == ("max_model_len" in settings)


def test_the_model_s_own_eos_ids_end_beams(tmp_path: Path) -> None:
    """Without `ignore_eos`, with the ids of the generation config; fewer answers than beams."""
    model = build_family("llama grouped", tmp_path)
    prompt = tuple(b"Once upon a time")
    free = SamplingParams(max_tokens=6, num_beams=4, num_return_sequences=4)
    tokens = beams_of_transformers(model, prompt, free)[0][0]
    model.generation_config.eos_token_id = [tokens[2], 257]
    model.save_pretrained(tmp_path)
    engine = Engine(EngineConfig(str(tmp_path), dtype="float32", num_blocks=64))
    params = SamplingParams(max_tokens=10, num_beams=4, num_return_sequences=2)
    expected = beams_of_transformers(
        model, prompt,
        SamplingParams(max_tokens=10, num_beams=4, num_return_sequences=2,
                       stop_token_ids=(tokens[2], 257)),
    )  # fmt: skip
    (output,) = engine.generate([Request("r", prompt, params)])
    assert [beam.token_ids for beam in output.beams] == [found for found, _ in expected]
    assert output.finish_reason is FinishReason.STOP


def test_too_many_beams_for_the_vocabulary_are_refused(tmp_path: Path) -> None:
    from engine.beam_output import check_vocabulary
    from engine.errors import RequestError

    check_vocabulary(SamplingParams(num_beams=8), 1, 9)
    with pytest.raises(RequestError, match="only 8 tokens, of which 1 end"):
        check_vocabulary(SamplingParams(num_beams=8), 1, 8)
