"""The weights of a GGUF file, expanded to float32 and written as safetensors.

llama.cpp's names become those of Hugging Face, and the rows of Llama's queries and keys go back
to the order that its rotary embedding has there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from engine.errors import BrokenModel
from engine.loading.gguf_header import GgufHeader
from engine.startup import Step

Shape = tuple[int, ...]
Tensor = np.ndarray[Any, np.dtype[np.float32]]

# Each with its size in the format of safetensors: https://github.com/huggingface/safetensors
_LENGTH_BYTES, _ALIGNMENT, _FLOAT32_BYTES = 8, 8, 4
_MAX_THREADS = 8


def write_weights(
    header: GgufHeader, config: Mapping[str, Any], target: Path, source: Path
) -> None:
    """Write all weights to one file.

    Tensors are expanded side by side, each straight to its place in the file, so that memory
    need not hold the model.

    Args:
        config: the model's `config.json`.
        target: the safetensors file.
        source: the GGUF file, for messages.

    Raises:
        BrokenModel: tensors are missing, unexpected or of a wrong shape.
    """
    names = _checked_names(header, config, source)
    shapes = {name: _shape(tensor) for name, tensor in names.items()}
    places = _allocate(target, shapes)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    turned = heads if header.architecture == "llama" else {}

    def expand(name: str) -> None:
        weights = gguf.dequantize(names[name].data, names[name].tensor_type)
        count = turned.get(name.split(".")[-2])
        places[name][...] = weights if count is None else _in_halves(weights, count)

    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
        step = Step("converting the model", sum(place.size for place in places.values()))
        for name, _ in zip(names, pool.map(expand, names), strict=True):
            step.add(places[name].size)


def _checked_names(
    header: GgufHeader, config: Mapping[str, Any], source: Path
) -> dict[str, gguf.ReaderTensor]:
    """The file's tensors by their Hugging Face names, in the order of these."""
    expected = _expected(header.architecture, config)
    found = {tensor.name: tensor for tensor in header.reader.tensors}
    if missing := sorted(name for key, (name, _) in expected.items() if key not in found):
        raise BrokenModel(f"{source} lacks the weights {', '.join(missing[:3])}")
    for key, tensor in found.items():
        if key not in expected:
            raise BrokenModel(
                f"{source} holds the tensor {key}, which a model of "
                f"{config['num_hidden_layers']} layers does not have"
            )
        if _shape(tensor) != expected[key][1]:
            raise BrokenModel(
                f"{source}: the tensor {key} has the shape {list(_shape(tensor))}; the file's "
                f"own parameters ask for {list(expected[key][1])}"
            )
    return dict(sorted((name, found[key]) for key, (name, _) in expected.items()))


def _expected(architecture: str, config: Mapping[str, Any]) -> dict[str, tuple[str, Shape]]:
    """For each tensor's name in llama.cpp: the name in Hugging Face's layout, and the shape."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    queries, keys = heads * head_dim, kv_heads * head_dim
    vocabulary = (config["vocab_size"], hidden)
    expected: dict[str, tuple[str, Shape]] = {
        "token_embd.weight": ("model.embed_tokens.weight", vocabulary),
        "output_norm.weight": ("model.norm.weight", (hidden,)),
    }
    if not config["tie_word_embeddings"]:
        expected["output.weight"] = ("lm_head.weight", vocabulary)
    layer: dict[str, tuple[str, Shape]] = {
        "attn_norm.weight": ("input_layernorm.weight", (hidden,)),
        "attn_q.weight": ("self_attn.q_proj.weight", (queries, hidden)),
        "attn_k.weight": ("self_attn.k_proj.weight", (keys, hidden)),
        "attn_v.weight": ("self_attn.v_proj.weight", (keys, hidden)),
        "attn_output.weight": ("self_attn.o_proj.weight", (hidden, queries)),
        "ffn_norm.weight": ("post_attention_layernorm.weight", (hidden,)),
        "ffn_gate.weight": ("mlp.gate_proj.weight", (inner, hidden)),
        "ffn_up.weight": ("mlp.up_proj.weight", (inner, hidden)),
        "ffn_down.weight": ("mlp.down_proj.weight", (hidden, inner)),
    }
    if architecture == "qwen2":
        layer["attn_q.bias"] = ("self_attn.q_proj.bias", (queries,))
        layer["attn_k.bias"] = ("self_attn.k_proj.bias", (keys,))
        layer["attn_v.bias"] = ("self_attn.v_proj.bias", (keys,))
    if architecture == "qwen3":
        layer["attn_q_norm.weight"] = ("self_attn.q_norm.weight", (head_dim,))
        layer["attn_k_norm.weight"] = ("self_attn.k_norm.weight", (head_dim,))
    for i in range(config["num_hidden_layers"]):
        for key, (name, shape) in layer.items():
            expected[f"blk.{i}.{key}"] = (f"model.layers.{i}.{name}", shape)
    return expected


def _shape(tensor: gguf.ReaderTensor) -> Shape:
    """Of the weights; the format writes the last dimension first."""
    return tuple(int(size) for size in reversed(tensor.shape))


def _in_halves(weights: Tensor, heads: int) -> Tensor:
    """Rows of queries or keys in Hugging Face's order.

    llama.cpp turns neighbouring dimensions of a head together, Hugging Face's Llama the first
    half with the second.
    """
    pairs = weights.reshape(heads, -1, 2, weights.shape[1])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


def _allocate(target: Path, shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Make a safetensors file of float32 tensors; returns each one's place, memory-mapped."""
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    ends = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + int(np.prod(shape)) * _FLOAT32_BYTES
        described[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
        ends[name] = (start, end)
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    begin = _LENGTH_BYTES + len(text)
    with target.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        file.truncate(begin + end)
        if hasattr(os, "posix_fallocate"):
            # Writing to memory for which the disk has no room kills the process; this raises.
            os.posix_fallocate(file.fileno(), 0, begin + end)
    data = np.memmap(target, np.float32, mode="r+", offset=begin)
    return {
        name: data[start // _FLOAT32_BYTES : stop // _FLOAT32_BYTES].reshape(shapes[name])
        for name, (start, stop) in ends.items()
    }
