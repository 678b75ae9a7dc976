"""The runner: greedy answers of transformers, sampling rows apart, and rows that fail alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.batch import NAN_LOGITS, SampledToken
from engine.kv_cache import KVCache
from engine.kv_format import KVFormat
from engine.loading import load_model, resolve_model
from engine.runner import Runner
from engine.sampling_params import SamplingParams
from tests.support.by_hand import ByHand, load_runner

PROMPTS = {f"p{n}": [(7 * i + n) % 256 for i in range(n)] for n in (1, 5, 16, 31, 70)}


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("chunk", [9, 64])
def test_greedy_answers_are_those_of_generate(folder: Path, block_size: int, chunk: int) -> None:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    hand = ByHand(load_runner(folder, block_size=block_size))
    answers = hand.generate(PROMPTS, count=20, chunk=chunk)
    for name, tokens in PROMPTS.items():
        whole = model.generate(
            torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.int64),
            max_new_tokens=20,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert answers[name] == whole[0, len(tokens) :].tolist()


@pytest.mark.quick
def test_tokens_come_in_batch_order_for_sequences_that_sample(folder: Path) -> None:
    hand = ByHand(load_runner(folder))
    parts = [
        hand.part(name, tokens, 0, len(tokens), samples=name not in ("p5", "p31"))
        for name, tokens in PROMPTS.items()
    ]
    tokens = hand.runner.execute(hand.batch(*parts))
    assert [t.request_id for t in tokens] == ["p1", "p16", "p70"]
    assert hand.runner.execute(hand.batch(hand.part("x", [1, 2], 0, 2, samples=False))) == []
    assert hand.runner.execute(hand.batch()) == []


@pytest.mark.quick
def test_a_sampled_token_does_not_depend_on_the_batch(folder: Path) -> None:
    def sampled(names: list[str]) -> dict[str, SampledToken]:
        hand = ByHand(load_runner(folder))
        parts = [
            hand.part(
                name,
                PROMPTS[name],
                0,
                len(PROMPTS[name]),
                params=SamplingParams(temperature=2.0, top_p=0.95, seed=len(name)),
            )
            for name in names
        ]
        return {t.request_id: t for t in hand.runner.execute(hand.batch(*parts))}

    together = sampled(list(PROMPTS))
    for name in PROMPTS:
        assert sampled([name]) == {name: together[name]}
    assert sampled(list(reversed(PROMPTS))) == together


@pytest.mark.quick
def test_seed_position_and_sample_index_reach_the_sampler(folder: Path) -> None:
    hand = ByHand(load_runner(folder, num_blocks=400))
    hot = {"temperature": 50.0}
    parts = [
        hand.part(f"seed {i}", [1], 0, 1, params=SamplingParams(seed=i, **hot)) for i in range(40)
    ] + [
        hand.part(f"sample {i}", [1], 0, 1, params=SamplingParams(**hot), sample_index=i)
        for i in range(40)
    ]
    tokens = [t.token_id for t in hand.runner.execute(hand.batch(*parts))]
    assert len(set(tokens[:40])) > 20
    assert len(set(tokens[40:])) > 20
    assert tokens[0] == tokens[40]  # the same seed, position and index
    same = [2] * 40
    hand.runner.execute(hand.batch(hand.part("long", same, 0, 40, samples=False)))
    params = SamplingParams(**hot)
    along = [
        hand.runner.execute(hand.batch(hand.part("long", same, i, i + 1, params=params)))
        for i in range(40)
    ]
    assert len({t[0].token_id for t in along}) > 20


@pytest.mark.quick
def test_a_row_of_nan_fails_alone_and_leaves_nothing_behind(folder: Path) -> None:
    runner = load_runner(folder, num_blocks=12, block_size=8)
    poison = 250
    runner.loaded.model.embed_tokens[poison] = torch.nan
    hand = ByHand(runner)
    good, bad = [1, 2, 3, 4, 5, 6, 7, 8, 9], [poison] * 40
    expected = hand.runner.execute(hand.batch(hand.part("a", good, 0, 9)))
    hand.free("a")
    hot = SamplingParams(temperature=1.0, top_p=0.5)
    both = hand.batch(hand.part("a", good, 0, 9), hand.part("b", bad, 0, 40, params=hot))
    assert hand.runner.execute(both) == [*expected, SampledToken("b", -1, NAN_LOGITS)]
    hand.free("a")
    hand.free("b")
    after = hand.batch(hand.part("a", good, 0, 9))
    assert hand.runner.execute(after) == expected
    hand.part("c", good, 0, 9)  # takes blocks that "b" filled with NaN
    decode = [hand.part(name, [*good, 10], 0, 9, samples=False) for name in ("c", "d")]
    hand.runner.execute(hand.batch(*decode))
    decodes = hand.batch(*(hand.part(name, [*good, 10], 9, 10) for name in ("a", "c", "d")))
    assert len({t.token_id for t in hand.runner.execute(decodes)} - {-1}) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_follows_transformers(folder: Path, dtype: str) -> None:
    from transformers import LlamaForCausalLM

    loaded = load_model(resolve_model(str(folder)), dtype, "cpu")
    kv_cache = KVCache.create(loaded.config, 16, 16, KVFormat(loaded.dtype), loaded.device)
    hand = ByHand(Runner(loaded, kv_cache))
    logits = hand.runner.logits(hand.batch(hand.part("a", PROMPTS["p70"], 0, 70)))
    assert logits.dtype == loaded.dtype
    assert kv_cache.format.name == dtype
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        expected = model(torch.tensor([PROMPTS["p70"]])).logits[0, -1]
    cosine = torch.cosine_similarity(logits[0].float(), expected, dim=0)
    assert cosine > 0.998


@pytest.mark.quick
def test_threads_are_set_only_where_asked(folder: Path) -> None:
    runner = load_runner(folder)
    before = torch.get_num_threads()
    try:
        Runner(runner.loaded, runner.kv_cache, threads=3)
        assert torch.get_num_threads() == 3
        Runner(runner.loaded, runner.kv_cache)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
