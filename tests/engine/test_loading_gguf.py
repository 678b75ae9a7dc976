"""GGUF files: converted once, exactly, and refused where the conversion would lose something."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import BrokenModel, UnsupportedModel
from engine.loading import gguf, load_model, resolve_model
from tests.support.by_hand import ByHand, load_runner
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_model import build_tiny_model, randomize


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A model with grouped heads, and its tokenizer."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    folder = build_tiny_model(tmp_path_factory.mktemp("source"), vocab_size=261)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAGEMILL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "llama", {}),
    "llama tied": ("LlamaForCausalLM", "llama", {"tie_word_embeddings": True}),
    "mistral": ("MistralForCausalLM", "llama", {"sliding_window": None, "head_dim": 12}),
    "qwen2": ("Qwen2ForCausalLM", "qwen2", {"rope_parameters": {"rope_theta": 1e6}}),
    "qwen2 tied": ("Qwen2ForCausalLM", "qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", "qwen3", {"head_dim": 16, "rms_norm_eps": 1e-3}),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_converted_file_is_the_model_it_was_made_from(family: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    architecture, name, overrides = FAMILIES[family]
    folder = tmp_path / "source"
    model = randomize(build_tiny_model(folder, architecture, vocab_size=261, **overrides))
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, model, AutoTokenizer.from_pretrained(folder), architecture=name)
    tokens = [(i * 37) % 256 for i in range(50)]
    hand = ByHand(load_runner(resolve_model(str(path)).path))
    logits = hand.runner.logits(hand.batch(hand.part("a", tokens, 0, 50)))
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0, -1]
    torch.testing.assert_close(logits[0], expected, rtol=0, atol=1e-4)


def test_weights_tokenizer_template_and_ends(
    source: tuple[Any, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoTokenizer, LlamaForCausalLM

    model, tokenizer = source
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, model, tokenizer, metadata={"tokenizer.ggml.eot_token_id": 259})
    capfd.readouterr()
    files = resolve_model(str(path))
    assert capfd.readouterr() == ("", "")
    loaded = load_model(files)
    assert loaded.eos_token_ids == {257, 259}
    assert (loaded.dtype, loaded.config.checkpoint_dtype) == (torch.float32, "float32")
    theirs = LlamaForCausalLM.from_pretrained(files.path).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name
    converted = AutoTokenizer.from_pretrained(files.path)
    text = "naïve <|im_start|>user\n"
    assert converted(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert converted.chat_template == tokenizer.chat_template


def test_a_file_is_converted_once_wherever_it_lies(
    source: tuple[Any, Any], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, *source)
    first = resolve_model(str(path))
    monkeypatch.setattr(gguf, "_convert", lambda *args: pytest.fail("converted again"))
    moved = tmp_path / "elsewhere" / path.name
    moved.parent.mkdir()
    path.rename(moved)
    os.utime(moved, (0, 0))
    second = resolve_model(str(moved))
    assert (second.path, second.revision) == (first.path, first.revision)
    assert list(cache.iterdir()) == [first.path]
    assert {f.stat().st_mode & 0o777 for f in first.path.iterdir()} == {0o666 & ~umask()}


def test_another_process_that_converts_at_the_same_time(
    source: tuple[Any, Any], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, *source)
    expected = resolve_model(str(path)).path
    expected.rename(tmp_path / "done by the other")
    convert = gguf._convert

    def convert_second(*args: Any) -> None:
        convert(*args)
        (tmp_path / "done by the other").rename(expected)

    monkeypatch.setattr(gguf, "_convert", convert_second)
    assert resolve_model(str(path)).path == expected
    assert list(cache.iterdir()) == [expected]
    load_model(resolve_model(str(path)))


def test_what_killed_conversions_left_is_removed_after_a_day(
    source: tuple[Any, Any], tmp_path: Path, cache: Path
) -> None:
    old, young = cache / ".converting-old", cache / ".converting-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
    os.utime(old, (time.time() - 90_000,) * 2)
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, *source)
    files = resolve_model(str(path))
    assert set(cache.iterdir()) == {files.path, young}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architecture": "gemma2"}, "'gemma2'; supported in GGUF files are llama, qwen2, qwen3"),
        ({"metadata": {"llama.rope.scaling.type": "linear"}}, "scales its rotary embedding"),
        ({"extra_tensors": ("rope_freqs.weight",)}, "scales its rotary embedding"),
        ({"metadata": {"split.count": 3}}, "one of 3 parts"),
        (
            {"metadata": {"qwen2.rope.scaling.type": "yarn"}, "architecture": "qwen2"},
            "scales its rotary embedding",
        ),
        ({"extra_tensors": ("blk.0.attn_q.bias",)}, "the tensor blk.0.attn_q.bias"),
        ({"extra_tensors": ("blk.0.ffn_gate_exps.weight",)}, "the tensor blk.0.ffn_gate_exps"),
        ({"metadata": {"llama.expert_count": 8}}, "sets llama.expert_count to 8"),
        ({"metadata": {"llama.attention.sliding_window": 64}}, "llama.attention.sliding_window"),
        ({"metadata": {"llama.attention.scale": 0.5}}, "llama.attention.scale to 0.5"),
        ({"metadata": {"llama.attention.key_length": 16}}, "heads of 16 .* RoPE turns 8"),
        ({"metadata": {"llama.attention.value_length": 4}}, "and values of 4"),
        (
            {"metadata": {"qwen2.attention.key_length": 16}, "architecture": "qwen2"},
            "heads of 16 numbers where a qwen2 model has 8",
        ),
    ],
)
def test_variants_that_the_conversion_would_lose(
    change: dict[str, Any], says: str, source: tuple[Any, Any], tmp_path: Path, cache: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, *source, **change)
    with pytest.raises(UnsupportedModel, match=says):
        resolve_model(str(path))
    assert list(cache.iterdir()) == []


def test_parameters_that_ask_for_nothing(source: tuple[Any, Any], tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    metadata = {"llama.expert_count": 0, "llama.rope.scaling.type": "none"}
    write_tiny_gguf(path, *source, metadata=metadata)
    load_model(resolve_model(str(path)))


def test_missing_weights_are_not_invented(
    source: tuple[Any, Any], tmp_path: Path, cache: Path
) -> None:
    """A Llama model has no biases, which a file of qwen2 must hold."""
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, *source, architecture="qwen2")
    with pytest.raises(BrokenModel, match=r"lacks the weights model.layers.0.self_attn.k_proj.bia"):
        resolve_model(str(path))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("length", [0, 3, 2000, -100])
def test_damaged_files(length: int, source: tuple[Any, Any], tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, *source)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BrokenModel, match=r"tiny\.gguf is not a whole GGUF file"):
        resolve_model(str(path))
    assert list(cache.iterdir()) == []


def test_the_default_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from engine.loading.cache import cache_folder

    monkeypatch.delenv("PAGEMILL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pagemill"


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
