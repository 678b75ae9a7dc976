"""Requests that ask the engine for all that it can do, and engines that make it do it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.core import Engine
from engine.grammar.spec import GrammarKind, GrammarSpec
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.swap_cost import SwapCost
from engine.task import Embed, Pooling, Score

SHARED = tuple(b"A system prompt, of three blocks of eight.")
OPEN_END = {"ignore_eos": True, "stop_token_ids": (1 << 30,)}


def requests() -> list[Request]:
    """A shared prompt, samples that fork, beams, every rule of sampling, a grammar, and tasks."""
    greedy = SamplingParams(5, **OPEN_END)  # type: ignore[arg-type]
    hot = SamplingParams(18, temperature=1.0, seed=3, logprobs=2, **OPEN_END)  # type: ignore[arg-type]
    ruled = SamplingParams(
        4, temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=4, repetition_penalty=1.2,
        presence_penalty=0.5, frequency_penalty=0.5, logit_bias=((70, 2.0), (71, -3.0)),
        bad_words_ids=((72,), (73, 74)), min_tokens=2, logprobs=0, ignore_eos=True,
    )  # fmt: skip
    digits = GrammarSpec(GrammarKind.REGEX, "[0-9]{9}", "structured_outputs.regex")
    return [
        *(Request(f"shared {n}", (*SHARED, n), greedy) for n in range(3)),
        *(Request(f"fork {i}", SHARED[5:22], hot, 0, i, sample_of="fork") for i in range(3)),
        Request("ruled", SHARED[:9], ruled),
        Request("grammar", SHARED[:9], SamplingParams(4, grammar=digits)),
        Request("beams", SHARED[3:10], SamplingParams(4, num_beams=2)),
        Request("prompt", SHARED[:20], SamplingParams(1, prompt_logprobs=1)),
        Request("score", SHARED[:25], task=Score(20)),
        Request("embed", SHARED[:12], task=Embed(Pooling.MEAN)),
    ]


def with_gelu(folder: Path) -> Path:
    """The same model with another activation."""
    other = folder.with_name(f"{folder.name}-gelu")
    shutil.copytree(folder, other, dirs_exist_ok=True)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    return other


def engines(folder: Path, **settings: Any) -> Iterator[Engine]:
    """One with room for all, and one that swaps, has a cache of 8 bits and computes GELUs."""
    common = {
        "device": "cpu", "dtype": "float32", "max_model_len": 64, "max_num_seqs": 8,
        "max_num_batched_tokens": 64, "block_size": 8, "check_invariants": True, "threads": 1,
        **settings,
    }  # fmt: skip
    yield Engine(EngineConfig(str(folder), **{**common, "num_blocks": 128}))
    tight = Engine(
        EngineConfig(str(with_gelu(folder)), **{**common, "num_blocks": 10, "swap_space": 0.01})
    )
    tight.scheduler._swap._cost = SwapCost()  # whatever copying costs beside this tiny model
    yield tight
