"""Code that lies in a model's folder is never run, by the engine and by the tokenizer."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.loading import load_model, resolve_model
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_model import build_tiny_model, byte_tokenizer
from worker.errors import ModelUnavailable
from worker.prompts import PromptEncoder

# Every class that transformers may be told to take from a file of the model.
CLASSES = {
    "AutoConfig": "hostile.Config",
    "AutoModel": "hostile.Model",
    "AutoModelForCausalLM": "hostile.Model",
    "AutoTokenizer": ["hostile.Tokenizer", "hostile.Tokenizer"],
    "AutoProcessor": "hostile.Processor",
}
ELSEWHERE = dict.fromkeys(CLASSES, "somebody/else--hostile.X")
FILES = ("config.json", "tokenizer_config.json", "generation_config.json", "processor_config.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("hostile"))


def with_code(source: Path, folder: Path, name: str, changes: dict[str, Any]) -> Path:
    """A copy of a model with code beside it, which one of its files names."""
    shutil.copytree(source, folder)
    code = f"open({str(folder / 'executed')!r}, 'w')\nclass Config: ...\nclass Model: ...\n"
    code += "class Tokenizer: ...\nclass Processor: ...\n"
    for module in ("hostile", "__init__", "tokenizers", "torch", "config", "json", "sitecustomize"):
        (folder / f"{module}.py").write_text(code)
    path = folder / name
    fields = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(fields | changes))
    return folder


@pytest.mark.parametrize("auto_map", [CLASSES, ELSEWHERE], ids=["here", "elsewhere"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("own", [False, True], ids=["known", "unknown"])
def test_code_of_a_model_is_not_run(
    name: str, auto_map: dict[str, Any], own: bool, whole: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also where the class that is asked for is none that transformers has."""
    changes: dict[str, Any] = {"auto_map": auto_map}
    if own:
        changes |= {"tokenizer_class": "HostileTokenizer", "model_type": "hostile"}
    folder = with_code(whole, tmp_path / "model", name, changes)
    monkeypatch.chdir(folder)
    refused = []
    for use in (lambda: load_model(resolve_model(str(folder))), lambda: PromptEncoder(str(folder))):
        try:
            use()
        except (EngineError, ModelUnavailable) as error:
            refused.append(str(error))
    assert not (folder / "executed").exists()
    assert all(len(sentence) > 20 for sentence in refused)
    if name == "config.json":
        assert refused
        assert own or "code of the model's own, which is never run" in refused[0]


def test_code_beside_a_gguf_file_is_not_run(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("PAGEMILL_CACHE_DIR", str(tmp_path / "cache"))
    folder = with_code(whole, tmp_path / "model", "tokenizer_config.json", {"auto_map": CLASSES})
    (folder / "config.json").write_text(json.dumps({"auto_map": CLASSES, "model_type": "hostile"}))
    path = folder / "tiny.gguf"
    write_tiny_gguf(path, AutoModelForCausalLM.from_pretrained(whole), byte_tokenizer())
    monkeypatch.chdir(folder)
    with contextlib.suppress(EngineError):
        resolve_model(str(path))
    assert not (folder / "executed").exists()
