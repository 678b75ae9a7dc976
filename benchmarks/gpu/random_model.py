"""Models of real shapes with random weights: nothing is downloaded and nothing is written but a
config and a tokenizer of bytes. Each tensor's numbers depend on its name alone, so that two
processes, and two libraries, have the same model.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu.shapes import Shape
from engine.loading import ModelFiles
from engine.loading.loaded import LoadedModel
from engine.models.decoder import Decoder
from engine.models.read_config import read_model_config

if TYPE_CHECKING:
    from benchmarks.gpu.device import Device

_EOS = 1  # ignored by all that is measured


def write_files(shape: Shape, folder: Path) -> ModelFiles:
    """config.json and tokenizer.json."""
    llama = not shape.qk_norm
    config = {
        "architectures": ["LlamaForCausalLM" if llama else "Qwen3ForCausalLM"],
        "model_type": "llama" if llama else "qwen3",
        "hidden_size": shape.hidden, "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "vocab_size": shape.vocab, "max_position_embeddings": 8192 if llama else 40960,
        "rms_norm_eps": 1e-5 if llama else 1e-6, "hidden_act": "silu",
        "rope_theta": 500_000.0 if llama else 1_000_000.0, "attention_bias": False,
        "tie_word_embeddings": not llama, "torch_dtype": "bfloat16",
        "bos_token_id": 0, "eos_token_id": _EOS,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    _tokenizer().save(str(folder / "tokenizer.json"))
    return ModelFiles(folder, shape.name, "random")


def _tokenizer() -> Any:
    """Each of the first 256 ids is a byte; the others have no text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


@torch.no_grad()
def fill(tensors: Iterable[tuple[str, torch.Tensor]], device: torch.device) -> None:
    """Random numbers for the weights of a checkpoint, by name."""
    generator = torch.Generator(device)
    for name, tensor in tensors:
        if tensor.ndim == 1:
            tensor.fill_(1.0)  # norms
        else:
            generator.manual_seed(zlib.crc32(name.encode()))
            tensor.normal_(0.0, 0.02, generator=generator)


def load(files: ModelFiles, device: Device) -> LoadedModel:
    """Our model, in bfloat16, as `engine.loading.load_model` would give it."""
    config = read_model_config(files.path)
    placed = device.torch_device
    with torch.no_grad():
        model = Decoder(config, torch.bfloat16, placed)
        fill(((name, t) for name, t in model.checkpoint_tensors()), placed)
        model.pack()
    model.eval()
    return LoadedModel(model, config, frozenset({_EOS}), torch.bfloat16, placed)


def prompts(shape: Shape, count: int, tokens: int) -> list[list[int]]:
    """Prompts with nothing in common."""
    draw = random.Random(5)
    return [[draw.randrange(2, shape.vocab) for _ in range(tokens)] for _ in range(count)]
