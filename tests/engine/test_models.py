"""Our decoder's logits equal those of transformers, in every variant of every family."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.by_hand import ByHand, load_runner
from tests.support.tiny_families import FAMILIES, LLAMA3, build_family
from tests.support.tiny_model import build_tiny_model, randomize

TOLERANCE = {"rtol": 0, "atol": 1e-4}


def build(folder: Path, **overrides: Any) -> Any:
    """A tiny Llama model in `folder`, biases and norms random too; transformers' own."""
    return randomize(build_tiny_model(folder, **overrides))


def without(key: str) -> dict[str, Any]:
    """The parameters of `LLAMA3` but one, as an older config.json has them."""
    return {name: value for name, value in LLAMA3.items() if name != key}


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(256), k=length)


@torch.inference_mode()
def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """[tokens, vocab_size]"""
    logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_whole_prompts_and_of_chunks(family: str, tmp_path: Path) -> None:
    model = build_family(family, tmp_path)
    hand = ByHand(load_runner(tmp_path))
    tokens = prompt(150)
    expected = reference_logits(model, tokens)
    whole = hand.runner.logits(hand.batch(hand.part("whole", tokens, 0, 150)))
    torch.testing.assert_close(whole[0], expected[-1], **TOLERANCE)
    for start, end in [(0, 1), (1, 50), (50, 51), (51, 128), (128, 150)]:
        chunk = hand.runner.logits(hand.batch(hand.part("chunks", tokens, start, end)))
        torch.testing.assert_close(chunk[0], expected[end - 1], **TOLERANCE)


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("family", ["llama grouped", "mistral window", "qwen3 upper window"])
def test_a_batch_of_prefill_chunks_and_decodes(
    family: str, block_size: int, tmp_path: Path
) -> None:
    model = build_family(family, tmp_path)
    hand = ByHand(load_runner(tmp_path, block_size=block_size, num_blocks=100), seed=block_size)
    sequences = {f"s{i}": prompt(length, i) for i, length in enumerate([90, 33, 17, 64, 1, 200])}
    expected = {name: reference_logits(model, tokens) for name, tokens in sequences.items()}
    before = {"s0": 89, "s1": 32, "s2": 16, "s3": 20, "s5": 77}
    hand.runner.execute(
        hand.batch(
            *(hand.part(n, sequences[n], 0, end, samples=False) for n, end in before.items())
        )
    )
    ends = {name: len(tokens) for name, tokens in sequences.items()} | {"s5": 150}
    mixed = hand.batch(
        *(
            hand.part(n, tokens, before.get(n, 0), ends[n], samples=n != "s3")
            for n, tokens in sequences.items()
        )
    )
    logits = hand.runner.logits(mixed)
    sampling = [name for name in sequences if name != "s3"]
    assert logits.shape[0] == len(sampling)
    for row, name in zip(logits, sampling, strict=True):
        torch.testing.assert_close(row, expected[name][ends[name] - 1], **TOLERANCE)


def test_sequences_may_share_the_blocks_of_a_prefix(tmp_path: Path) -> None:
    model = build(tmp_path)
    hand = ByHand(load_runner(tmp_path))
    prefix = prompt(32)
    hand.runner.execute(hand.batch(hand.part("a", prefix, 0, 32)))
    shared = hand._tables["a"]
    for name, length in [("b", 40), ("c", 33)]:
        hand._tables[name] = shared
        tokens = prefix + prompt(length - 32, length)
        logits = hand.runner.logits(hand.batch(hand.part(name, tokens, 32, length)))
        torch.testing.assert_close(logits[0], reference_logits(model, tokens)[-1], **TOLERANCE)


def test_sharded_checkpoint_in_half_precision(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    model = build(tmp_path).to(torch.bfloat16)
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    tokens = prompt(40)
    hand = ByHand(load_runner(tmp_path))
    logits = hand.runner.logits(hand.batch(hand.part("a", tokens, 0, 40)))
    model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    torch.testing.assert_close(logits[0], reference_logits(model, tokens)[-1], **TOLERANCE)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 500.0, "rope_scaling": None},
        {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_theta": 1000.0, "rope_scaling": without("rope_theta")},
        {"rope_parameters": LLAMA3, "original_max_position_embeddings": 32},
        {"rope_parameters": without("original_max_position_embeddings"),
         "max_position_embeddings": 100},
        {},
    ],
)  # fmt: skip
def test_rope_of_old_and_new_config_files(rope: dict[str, Any], tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    build(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    path.write_text(json.dumps(config | rope))
    model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    hand = ByHand(load_runner(tmp_path))
    tokens = prompt(90)
    logits = hand.runner.logits(hand.batch(hand.part("a", tokens, 0, 90)))
    torch.testing.assert_close(logits[0], reference_logits(model, tokens)[-1], **TOLERANCE)


def test_the_real_small_model() -> None:
    """SmolLM2-135M, converted from GGUF once into the user's cache."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    from engine.loading import resolve_model

    folder = resolve_model("smollm2-135m").path
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    hand = ByHand(load_runner(folder))
    texts = ["The capital of France is", "def fib(n):\n", "Once upon a time, " * 12]
    prompts = {text: tokenizer(text)["input_ids"] for text in texts}
    parts = (hand.part(text, tokens, 0, len(tokens)) for text, tokens in prompts.items())
    logits = hand.runner.logits(hand.batch(*parts))
    for row, tokens in zip(logits, prompts.values(), strict=True):
        expected = reference_logits(model, tokens)[-1]
        # 30 layers of float32 sums in another order, on logits of about 20.
        torch.testing.assert_close(row, expected, rtol=0, atol=5e-4)
        assert row.argmax() == expected.argmax()


def test_only_tokens_that_sample_pass_the_last_mlp(tmp_path: Path) -> None:
    build_tiny_model(tmp_path)
    hand = ByHand(load_runner(tmp_path))
    seen: list[int] = []
    for layer in hand.runner.loaded.model.layers:
        layer.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[0]))
    tokens = prompt(40)
    for samples, expected in [(True, [35, 2]), (False, [35, 1])]:
        seen.clear()
        hand.runner.logits(
            hand.batch(
                hand.part(f"a{samples}", tokens, 0, 30, samples=samples),
                hand.part(f"b{samples}", tokens, 0, 5),
            )
        )
        assert seen == expected
