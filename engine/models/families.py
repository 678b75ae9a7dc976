"""The model families that pagemill serves, and how each one's `config.json` is read.

All are one decoder with some parts switched on or off. A family says which field of the file
switches what, and what a missing field means: the same as in the family's configuration class
in transformers, because files leave out what equals it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import UnsupportedModel
from engine.models.fields import Fields, shown
from engine.models.windows import Windows, no_windows, same_window, upper_windows


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture of transformers.

    Attributes:
        model_types: what `model_type` in the file may be.
        defaults: values of missing fields.
        windows: reads which layers have a sliding window.
        qkv_bias, o_bias, mlp_bias: whether these projections have biases; a name is that of
            the field that decides.
        qk_norm: whether heads of queries and keys are normalized.
    """

    model_types: tuple[str, ...]
    defaults: Mapping[str, Any]
    windows: Callable[[Fields, int], Windows]
    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False

    def decides(self, name: str) -> bool:
        """Whether a field switches something in this family."""
        return name in (self.qkv_bias, self.o_bias, self.mlp_bias)


_ALL = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}
_LLAMA = _ALL | {
    "vocab_size": 32_000,
    "intermediate_size": 11_008,
    "num_key_value_heads": None,
    "max_position_embeddings": 2048,
    "attention_bias": False,
    "mlp_bias": False,
}
_MISTRAL = _ALL | {
    "vocab_size": 32_000,
    "intermediate_size": 14_336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
}
_QWEN2 = _ALL | {
    "vocab_size": 151_936,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_QWEN3 = _QWEN2 | {"head_dim": 128, "attention_bias": False}

FAMILIES = {
    "LlamaForCausalLM": Family(
        model_types=("llama",),
        defaults=_LLAMA,
        windows=no_windows,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
    ),
    # transformers calls a Mistral model with `layer_types` Ministral.
    "MistralForCausalLM": Family(("mistral", "ministral"), _MISTRAL, same_window),
    "MinistralForCausalLM": Family(("ministral", "mistral"), _MISTRAL, same_window),
    "Qwen2ForCausalLM": Family(("qwen2",), _QWEN2, upper_windows, qkv_bias=True),
    "Qwen3ForCausalLM": Family(
        model_types=("qwen3",),
        defaults=_QWEN3,
        windows=upper_windows,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm=True,
    ),
}


def family_of(architecture: str) -> Family:
    """The family of an architecture; UnsupportedModel where it is none of ours."""
    try:
        return FAMILIES[architecture]
    except KeyError:
        raise UnsupportedModel(
            f"the architecture {shown(architecture)} is not supported; supported are "
            f"{', '.join(sorted(FAMILIES))}"
        ) from None
