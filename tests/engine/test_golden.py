"""The engine's greedy answers equal those of transformers' `generate`.

On the real small model, in mixed batches, for every block size, with the prefix cache and
without it, and with a pool so small that sequences are preempted and computed again. Tiny
models of every family are in `test_families.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.core import Engine
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.support.golden import Reference, near_ties, references
from tests.support.once import made_once
from tests.support.tiny_model import build_tiny_model

MAX_TOKENS = 20
SYSTEM = (
    "You are the assistant of a small lending library. Loans last three weeks and may be renewed "
    "twice unless another reader waits for the book. Late books cost ten cents a day, at most "
    "four euros. Children pay nothing. Rooms can be booked for two hours by any reader."
)
QUESTIONS = [
    "How long can I keep a novel?", "My daughter lost a picture book. What do we owe?",
    "Is there a room for six people on Friday?", "Why was I fined?", "Can you renew my loans?",
    "Which floor are the maps on?", "Say hello in French.", "What is 17 plus 25?",
]  # fmt: skip
RAW = [
    "Once upon a time", "The capital of France is", "def fibonacci(n):", "1, 2, 3, 4,",
    "Dear Sir or Madam,", "The", "Water boils at", "In the year 1969,",
]  # fmt: skip


def asked_of_transformers(folder: Path) -> None:
    """40 prompts of 1 to about 700 tokens, and what transformers answers to them, in a file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.loading import resolve_model

    source = resolve_model("smollm2-135m").path
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)

    def chat(system: str, question: str) -> list[int]:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    prompts = [chat(SYSTEM, q) for q in QUESTIONS]
    prompts += [chat("Answer in one word.", q) for q in QUESTIONS]
    prompts += [tokenizer(text)["input_ids"] for text in RAW]
    prompts += [tokenizer((text + " ") * n)["input_ids"] for n, text in enumerate(RAW, 3)]
    prompts += [prompts[0], prompts[0], prompts[16]]  # equal prompts share all full blocks
    prompts += [chat(SYSTEM + " " + SYSTEM * n, QUESTIONS[n % 8]) for n in (1, 3, 6, 8)]
    prompts += [[t] for t in prompts[1][:1]]
    eos = sorted(tokenizer.convert_tokens_to_ids([tokenizer.eos_token]))
    found = references(model, prompts, MAX_TOKENS, eos, at_once=4)
    answers = [(reference.token_ids, reference.margins) for reference in found]
    (folder / "answers.json").write_text(json.dumps([prompts, answers]))


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """Prompts, and what the real model answers to them in transformers."""
    folder = made_once(tmp_path_factory, "smollm2-references", asked_of_transformers)
    prompts, found = json.loads((folder / "answers.json").read_text())
    return prompts, [Reference(tuple(tokens), tuple(margins)) for tokens, margins in found]


def answers(engine, prompts, **params):
    """Token ids by prompt, all prompts in the engine at once."""
    rules = SamplingParams(max_tokens=MAX_TOKENS, **params)
    requests = [Request(str(i), tuple(p), rules) for i, p in enumerate(prompts)]
    found = {o.request_id: o for o in engine.generate(requests)}
    assert len(found) == len(prompts)
    engine.scheduler.check_invariants()
    assert engine.stats.blocks_used == 0  # what is not cached is free again
    return [found[str(i)].token_ids for i in range(len(prompts))]


def engine_of(model, **settings):
    return Engine(
        EngineConfig(
            **{
                "model": str(model), "device": "cpu", "dtype": "float32", "num_blocks": 1024,
                "check_invariants": True, **settings,
            }
        )
    )  # fmt: skip


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
def test_smollm2_equals_transformers(smollm2, block_size, prefix_cache, record_property):
    prompts, expected = smollm2
    assert len(prompts) >= 32
    engine = engine_of("smollm2-135m", block_size=block_size, enable_prefix_caching=prefix_cache)
    record_property("near_ties", near_ties(expected, answers(engine, prompts)))
    if prefix_cache:
        assert engine.stats.cached_tokens > 0
    else:
        assert engine.stats.cached_tokens == 0


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
def test_smollm2_equals_transformers_when_it_is_preempted(smollm2, prefix_cache, record_property):
    prompts, expected = smollm2
    engine = engine_of(
        "smollm2-135m",
        block_size=8,
        num_blocks=80,
        max_model_len=640,
        enable_prefix_caching=prefix_cache,
        swap_space=0,  # what was lost is computed again
    )
    record_property("near_ties", near_ties(expected, answers(engine, prompts)))
    assert engine.stats.preemptions > 0


def test_smollm2_again_from_a_warm_cache(smollm2):
    prompts, expected = smollm2
    engine = engine_of("smollm2-135m")
    answers(engine, prompts[:8])
    before = engine.stats.cached_tokens
    near_ties(expected[:8], answers(engine, prompts[:8]))
    cached = engine.stats.cached_tokens - before
    # Answers went on through the blocks in which the prompts end: all but one token is copied.
    assert cached == sum(len(p) - 1 for p in prompts[:8])


def test_every_eos_id_of_the_generation_config_stops(tmp_path):
    folder = build_tiny_model(tmp_path)
    prompt = list(b"The answer is")
    free = engine_of(folder)
    tokens = answers(free, [prompt], ignore_eos=True)[0]
    stop_at = next(i for i, t in enumerate(tokens) if t not in tokens[:i] and i > 2)
    path = folder / "generation_config.json"
    config = json.loads(path.read_text())
    config["eos_token_id"] = [257, tokens[stop_at]]
    path.write_text(json.dumps(config))
    engine = engine_of(folder)
    (output,) = engine.generate([Request("r", tuple(prompt), SamplingParams(max_tokens=20))])
    assert output.token_ids == tokens[: stop_at + 1]
    assert output.finish_reason is FinishReason.STOP
