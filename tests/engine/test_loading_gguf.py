"""GGUF files: converted once, exactly, and refused where the conversion would lose something."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine import startup
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


@pytest.mark.parametrize(
    ("family", "kind"),
    [(family, "F32") for family in FAMILIES]
    + [("llama", kind) for kind in ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")]
    + [("qwen2", "Q4_0"), ("qwen3", "Q8_0")],
)
def test_the_conversion_is_that_of_transformers(family: str, kind: str, tmp_path: Path) -> None:
    """Every value, and all that config.json says."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    architecture, name, overrides = FAMILIES[family]
    folder, path = tmp_path / "source", tmp_path / "tiny.gguf"
    sizes = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
    model = build_tiny_model(folder, architecture, vocab_size=261, **overrides | sizes)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    write_tiny_gguf(path, randomize(model), tokenizer, architecture=name, kind=kind)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32,
        **({"head_dim": 16} if name == "qwen3" else {}),
    )  # fmt: skip
    converted = resolve_model(str(path)).path
    weights = load_file(converted / "model.safetensors")
    state = theirs.state_dict()
    if theirs.config.tie_word_embeddings:
        del state["lm_head.weight"]
    assert weights.keys() == state.keys()
    for key, tensor in state.items():
        assert torch.equal(weights[key], tensor), key
    config = theirs.config.to_dict()
    config.pop("quantization_config", None)
    config["architectures"] = [type(theirs).__name__]
    written = json.loads((converted / "config.json").read_text())
    assert written == json.loads(json.dumps(config))
    theirs.generation_config.eos_token_id = [tokenizer.eos_token_id]
    theirs.generation_config.save_pretrained(tmp_path)
    ours, wanted = (f / "generation_config.json" for f in (converted, tmp_path))
    assert json.loads(ours.read_text()) == json.loads(wanted.read_text())
    theirs_tokenizer = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    theirs_tokenizer.save_pretrained(tmp_path / "tokenizer")
    for file in (tmp_path / "tokenizer").iterdir():
        assert (converted / file.name).read_bytes() == file.read_bytes(), file.name


def test_a_file_that_does_not_say_how_many_heads_keys_have(tmp_path: Path) -> None:
    """As many as queries, then; transformers would leave its keys in llama.cpp's order."""
    from transformers import AutoTokenizer

    folder, path = tmp_path / "source", tmp_path / "tiny.gguf"
    model = randomize(build_tiny_model(folder, vocab_size=261, num_key_value_heads=4))
    write_tiny_gguf(path, model, AutoTokenizer.from_pretrained(folder), kv_heads=False)
    weights = load_file(resolve_model(str(path)).path / "model.safetensors")
    for name, tensor in weights.items():
        assert torch.equal(tensor, model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"extra_tensors": ("blk.7.attn_norm.weight",)}, "blk.7.attn_norm.weight, which a model"),
        ({"vocab_size": 300}, r"token_embd.weight has the shape \[261, 32\].* for \[300, 32\]"),
    ],
)
def test_tensors_that_the_parameters_do_not_ask_for(
    change: dict[str, Any], says: str, source: tuple[Any, Any], tmp_path: Path, cache: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, *source, **change)
    with pytest.raises(BrokenModel, match=says):
        resolve_model(str(path))
    assert list(cache.iterdir()) == []


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


def test_a_conversion_tells_how_far_it_is(
    source: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "TELL_SECONDS", 0.0)
    path, told = tmp_path / "tiny.gguf", list[str]()
    write_tiny_gguf(path, *source)
    with startup.listening(told.append):
        resolve_model(str(path))
    shares = [int(step.split()[-1].rstrip("%")) for step in told if "%" in step]
    assert {step.rstrip("0123456789% ") for step in told} == {"converting the model"}
    assert (shares[0], shares[-1]) == (0, 100)
    assert len(shares) > 3
    assert shares == sorted(shares)


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


def test_a_full_disk_is_noticed_before_weights_are_written(
    source: tuple[Any, Any], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, *source)
    with pytest.raises(BrokenModel, match=r"cannot be converted: .*No space left on device"):
        resolve_model(str(path))
    assert list(cache.iterdir()) == []


def test_the_default_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from engine.loading.cache import cache_folder

    monkeypatch.delenv("PAGEMILL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pagemill"


def test_what_triton_compiles_is_kept_beside_the_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from engine.loading.cache import prepare_triton

    monkeypatch.setenv("PAGEMILL_CACHE_DIR", str(tmp_path))
    for name in ("TRITON_CACHE_DIR", "TRITON_DEFAULT_FP_FUSION"):
        monkeypatch.setenv(name, "the user's")  # so that it is as before afterwards
    prepare_triton()
    assert os.environ["TRITON_CACHE_DIR"] == os.environ["TRITON_DEFAULT_FP_FUSION"] == "the user's"

    for name in ("TRITON_CACHE_DIR", "TRITON_DEFAULT_FP_FUSION"):
        monkeypatch.delenv(name)
    prepare_triton()
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "triton")
    assert os.environ["TRITON_DEFAULT_FP_FUSION"] == "1"


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
