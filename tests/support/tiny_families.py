"""Tiny models of every family that pagemill serves, with every part switched on and off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.tiny_model import build_tiny_model, randomize

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]

# Windows of 21 tokens are no multiple of a block, and far shorter than the tests' prompts.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama grouped": ("LlamaForCausalLM", {}),
    "llama one kv head": ("LlamaForCausalLM", {"num_key_value_heads": 1}),
    "llama not grouped": ("LlamaForCausalLM", {"num_key_value_heads": 4}),
    "llama tied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama biases": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "llama own head_dim": ("LlamaForCausalLM", {"head_dim": 24}),
    "llama theta": (
        "LlamaForCausalLM",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "llama linear": ("LlamaForCausalLM", {"rope_parameters": LINEAR}),
    "llama llama3": ("LlamaForCausalLM", {"rope_parameters": LLAMA3}),
    "llama gelu": ("LlamaForCausalLM", {"hidden_act": "gelu_pytorch_tanh"}),
    "mistral": ("MistralForCausalLM", {"sliding_window": None}),
    "mistral window": ("MistralForCausalLM", {"sliding_window": 21}),
    "mistral own head_dim": (
        "MistralForCausalLM",
        {"sliding_window": 16, "head_dim": 12, "num_key_value_heads": 4},
    ),
    "mistral mixed": (
        "MinistralForCausalLM",
        {"sliding_window": 21, "layer_types": MIXED, "num_hidden_layers": 3, "head_dim": 8},
    ),
    "qwen2": ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen2 gelu": ("Qwen2ForCausalLM", {"hidden_act": "gelu"}),
    "qwen2 not grouped": ("Qwen2ForCausalLM", {"num_key_value_heads": 4}),
    "qwen2 upper window": (
        "Qwen2ForCausalLM",
        {
            "use_sliding_window": True,
            "sliding_window": 21,
            "max_window_layers": 1,
            "num_hidden_layers": 3,
        },
    ),
    "qwen2 mixed": (
        "Qwen2ForCausalLM",
        {
            "use_sliding_window": True,
            "sliding_window": 33,
            "layer_types": MIXED,
            "num_hidden_layers": 3,
        },
    ),
    "qwen2 yarn": (
        "Qwen2ForCausalLM",
        {"rope_parameters": YARN, "max_position_embeddings": 256},
    ),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3 biases": ("Qwen3ForCausalLM", {"head_dim": 8, "attention_bias": True}),
    "qwen3 upper window": (
        "Qwen3ForCausalLM",
        {
            "head_dim": 16,
            "num_key_value_heads": 1,
            "use_sliding_window": True,
            "sliding_window": 21,
            "max_window_layers": 1,
        },
    ),
    "qwen3 yarn": (
        "Qwen3ForCausalLM",
        {"head_dim": 32, "rope_parameters": YARN, "max_position_embeddings": 256},
    ),
}


def build_family(name: str, folder: Path) -> Any:
    """Save a model of `FAMILIES`, all its parameters random; returns transformers' own."""
    architecture, overrides = FAMILIES[name]
    model = randomize(build_tiny_model(folder, architecture, **overrides))
    if "layer_types" not in overrides:
        # Only files of transformers 5 have them; all others say it by `max_window_layers`.
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config.pop("layer_types", None)
        path.write_text(json.dumps(config))
    return model
