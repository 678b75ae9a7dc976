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
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_model import build_tiny_model


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
        ({"architecture": "qwen2"}, "architecture qwen2; supported in GGUF files is llama"),
        ({"metadata": {"llama.rope.scaling.type": "linear"}}, "scales its rotary embedding"),
        ({"extra_tensors": ("rope_freqs.weight",)}, "scales its rotary embedding"),
        ({"metadata": {"split.count": 3}}, "one of 3 parts"),
        ({"extra_tensors": ("blk.0.attn_q.bias",)}, "the tensor blk.0.attn_q.bias"),
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
