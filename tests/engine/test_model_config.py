"""Reading `config.json`: what each family's fields mean, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BrokenModel, ModelError, UnsupportedModel
from engine.models.config import ModelConfig
from engine.models.families import FAMILIES
from engine.models.read_config import read_model_config

pytestmark = pytest.mark.quick

SIZES = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}


def read(folder: Path, architecture: str = "LlamaForCausalLM", **fields: Any) -> ModelConfig:
    config = {"architectures": [architecture], **SIZES, **fields}
    (folder / "config.json").write_text(json.dumps(config))
    return read_model_config(folder)


# --- what missing fields mean


@pytest.mark.parametrize("architecture", FAMILIES)
def test_missing_fields_mean_what_they_mean_in_transformers(architecture: str) -> None:
    import transformers

    theirs = getattr(transformers, architecture).config_class
    defaults = {field.name: field.default for field in dataclasses.fields(theirs)}
    for name, value in FAMILIES[architecture].defaults.items():
        expected = theirs.default_theta if name == "rope_theta" else defaults[name]
        assert value == expected, name
    decides = {"attention_bias", "mlp_bias", "head_dim", "sliding_window", "use_sliding_window"}
    for name in decides & set(defaults):
        assert name in FAMILIES[architecture].defaults or defaults[name] is None, name


@pytest.mark.parametrize("architecture", FAMILIES)
def test_an_empty_file_means_the_whole_default_model(architecture: str, tmp_path: Path) -> None:
    import transformers

    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    ours = read_model_config(tmp_path)
    theirs = getattr(transformers, architecture).config_class()
    assert ours.vocab_size == theirs.vocab_size
    assert ours.intermediate_size == theirs.intermediate_size
    assert ours.num_layers == theirs.num_hidden_layers
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == 128
    assert ours.max_model_len == theirs.max_position_embeddings
    assert ours.rope.theta == theirs.rope_parameters["rope_theta"]
    window = theirs.sliding_window if hasattr(theirs, "sliding_window") else None
    assert set(ours.windows) == {window}


def test_null_is_not_missing(tmp_path: Path) -> None:
    assert set(read(tmp_path, "MistralForCausalLM").windows) == {4096}
    assert set(read(tmp_path, "MistralForCausalLM", sliding_window=None).windows) == {None}
    assert read(tmp_path, "MistralForCausalLM", num_key_value_heads=None).num_kv_heads == 4
    with pytest.raises(BrokenModel, match="hidden_size is None; it must be of type int"):
        read(tmp_path, hidden_size=None)


# --- which layers have a window


@pytest.mark.parametrize("family", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_windows_of_qwen(family: str, tmp_path: Path) -> None:
    used = {"use_sliding_window": True, "sliding_window": 9}
    assert read(tmp_path, family, sliding_window=9).windows == (None,) * 3
    assert read(tmp_path, family, **used).windows == (None,) * 3  # max_window_layers is 28
    assert read(tmp_path, family, **used, max_window_layers=1).windows == (None, 9, 9)
    types = ["sliding_attention", "attention", "full_attention"]
    assert read(tmp_path, family, **used, layer_types=types).windows == (9, None, None)
    unset = {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}
    assert read(tmp_path, family, **unset).windows == (None,) * 3


def test_windows_of_mistral(tmp_path: Path) -> None:
    types = ["sliding_attention", "full_attention", "full_attention"]
    for family in ("MistralForCausalLM", "MinistralForCausalLM"):
        assert read(tmp_path, family, sliding_window=9).windows == (9, 9, 9)
        assert read(tmp_path, family, sliding_window=9, layer_types=None).windows == (9, 9, 9)
        mixed = read(tmp_path, family, sliding_window=9, layer_types=types)
        assert mixed.windows == (9, None, None)


def test_a_window_that_llama_would_not_use_is_refused_unless_it_is_the_whole_context(
    tmp_path: Path,
) -> None:
    assert read(tmp_path, sliding_window=2048).windows == (None,) * 3
    assert read(tmp_path, sliding_window=None, layer_types=["full_attention"] * 3).windows
    with pytest.raises(UnsupportedModel, match="sliding_window is 2047, but this architecture"):
        read(tmp_path, sliding_window=2047)


# --- biases, norms, lengths


def test_biases_and_norms(tmp_path: Path) -> None:
    def parts(architecture: str, **fields: Any) -> str:
        c = read(tmp_path, architecture, **fields)
        flags = {"qkv": c.qkv_bias, "o": c.o_bias, "mlp": c.mlp_bias, "norm": c.qk_norm}
        return " ".join(name for name, on in flags.items() if on)

    assert parts("LlamaForCausalLM") == parts("MistralForCausalLM") == ""
    assert parts("LlamaForCausalLM", attention_bias=True) == "qkv o"
    assert parts("LlamaForCausalLM", mlp_bias=True) == "mlp"
    assert parts("Qwen2ForCausalLM") == parts("Qwen2ForCausalLM", attention_bias=True) == "qkv"
    assert parts("Qwen3ForCausalLM") == "norm"
    assert parts("Qwen3ForCausalLM", attention_bias=True) == "qkv o norm"


def test_yarn_goes_beyond_the_length_before_it(tmp_path: Path) -> None:
    """The recipe of Qwen's model cards adds `rope_scaling` and leaves the length as it was."""
    config = read(tmp_path, max_position_embeddings=32_768, rope_scaling=YARN)
    assert config.max_model_len == 131_072
    config = read(tmp_path, max_position_embeddings=200_000, rope_scaling=YARN)
    assert config.max_model_len == 200_000


# --- files as they are published

PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Llama 3.2 1B": (
        {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
         "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
         "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
         "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
         "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
         "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
         "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                          "original_max_position_embeddings": 8192, "rope_type": "llama3"},
         "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
         "use_cache": True, "vocab_size": 128256},
        {"max_model_len": 131_072, "tie_word_embeddings": True, "windows": (None,) * 16},
    ),
    "Mistral 7B v0.1": (
        {"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
         "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
         "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
         "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
         "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
         "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
         "vocab_size": 32000},
        {"head_dim": 128, "windows": (4096,) * 32},
    ),
    "Mistral Nemo": (
        {"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "head_dim": 128,
         "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 14336,
         "max_position_embeddings": 1024000, "model_type": "mistral", "num_attention_heads": 32,
         "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
         "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
         "torch_dtype": "bfloat16", "vocab_size": 131072},
        {"head_dim": 128, "windows": (None,) * 40},
    ),
    "Qwen2.5 7B with YaRN": (
        {"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
         "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768,
         "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
         "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
         "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": False,
         "torch_dtype": "bfloat16", "use_sliding_window": False, "vocab_size": 152064,
         "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768,
                          "type": "yarn"}},
        {"max_model_len": 131_072, "qkv_bias": True, "o_bias": False, "windows": (None,) * 28},
    ),
    "Qwen3 0.6B": (
        {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "head_dim": 128,
         "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
         "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
         "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
         "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
         "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
         "use_sliding_window": False, "vocab_size": 151936},
        {"head_dim": 128, "qk_norm": True, "qkv_bias": False, "windows": (None,) * 28},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files(name: str, tmp_path: Path) -> None:
    fields, expected = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    config = read_model_config(tmp_path)
    assert {key: getattr(config, key) for key in expected} == expected


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, UnsupportedModel,
         "'GPT2LMHeadModel' is not supported; supported are LlamaForCausalLM, MinistralForCausal"),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, UnsupportedModel, "'Qwen3MoeForCausalLM'"),
        ({"architectures": None}, BrokenModel, "architectures is None; it must be of type list"),
        ({"architectures": []}, BrokenModel, "must name a class"),
        ({"architectures": [["Llama"]]}, BrokenModel, "must name a class"),
        ({"model_type": "qwen2"}, BrokenModel,
         "architectures names LlamaForCausalLM, but model_type is 'qwen2'"),
        ({"hidden_act": "relu2"}, UnsupportedModel, "hidden_act is 'relu2'; supported are silu"),
        ({"hidden_act": ["gelu"]}, UnsupportedModel, "hidden_act is"),
        ({"hidden_activation": "gelu_pytorch_tanh"}, UnsupportedModel, "hidden_activation is"),
        ({"hidden_activation": {}}, UnsupportedModel, "hidden_activation is"),
        ({"quantization_config": {"quant_method": "gptq"}}, UnsupportedModel, "quantized .'gptq'"),
        ({"auto_map": {"AutoModelForCausalLM": "modeling_x.LlamaForCausalLM"}}, UnsupportedModel,
         "auto_map names 'modeling_x.LlamaForCausalLM', code of the model's own"),
        ({"num_local_experts": 8}, UnsupportedModel, "asks for a mixture of experts"),
        ({"attn_logit_softcapping": 50.0}, UnsupportedModel, "asks for softcapping of attention"),
        ({"clip_qkv": 8}, UnsupportedModel, "clip_qkv is 8, which asks for clipping"),
        ({"qk_layernorm": True}, UnsupportedModel, "asks for normalization of queries and keys"),
        ({"no_rope_layers": [1, 0, 1]}, UnsupportedModel, "asks for layers without RoPE"),
        ({"partial_rotary_factor": 0.5}, UnsupportedModel, "partial_rotary_factor is 0.5"),
        ({"logit_scale": 0.0625}, UnsupportedModel, "asks for scaling other than by 1"),
        ({"is_causal": False}, UnsupportedModel, "asks for attention to later tokens"),
        ({"position_embedding_type": "alibi"}, UnsupportedModel, "asks for other positions"),
        ({"per_layer_config": {"0": {"head_dim": 4}}}, UnsupportedModel, "of different sizes"),
        ({"hidden_size": "32"}, BrokenModel, "hidden_size is '32'; it must be of type int"),
        ({"hidden_size": True}, BrokenModel, "hidden_size is True; it must be of type int"),
        ({"vocab_size": 0}, BrokenModel, "vocab_size is 0; it must be 1 or more"),
        ({"vocab_size": 10**12}, BrokenModel, "1000000000000, more than any model has"),
        ({"num_attention_heads": 0}, BrokenModel, "num_attention_heads is 0"),
        ({"num_key_value_heads": 3}, BrokenModel, "do not divide"),
        ({"num_key_value_heads": [1, 2]}, BrokenModel, r"num_key_value_heads is \[1, 2\]"),
        ({"head_dim": 7}, BrokenModel, "even"),
        ({"hidden_size": 3}, BrokenModel, "head_dim is 0"),
        ({"rms_norm_eps": -1e-6}, BrokenModel, "rms_norm_eps is -1e-06; it must not be negative"),
        ({"rms_norm_eps": float("nan")}, BrokenModel, "rms_norm_eps is nan; it must be a finite"),
        ({"rms_norm_eps": 10**400}, BrokenModel, "rms_norm_eps is inf; it must be a finite"),
        ({"tie_word_embeddings": 1}, BrokenModel, "tie_word_embeddings is 1; .* type bool"),
        ({"torch_dtype": 16}, BrokenModel, "dtype is 16; it must be a name"),
    ],
)  # fmt: skip
def test_refusals(
    changes: dict[str, Any], error: type[ModelError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says) as caught:
        read(tmp_path, **changes)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("rope", "error", "says"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, UnsupportedModel,
         "RoPE type is 'dynamic'; supported are default, linear, llama3, yarn"),
        ({"type": "longrope"}, UnsupportedModel, "'longrope'"),
        ({"rope_type": ["yarn"]}, UnsupportedModel, r"\['yarn'\]"),
        ({"full_attention": {"rope_theta": 1e4}}, UnsupportedModel, "for .'full_attention'"),
        ([1], BrokenModel, "must be an object"),
        ({"rope_type": "linear"}, BrokenModel, "factor is missing"),
        ({"rope_type": "linear", "factor": 0.5}, BrokenModel, "factor is 0.5; it must be 1"),
        ({"rope_type": "yarn"}, BrokenModel, "factor is missing"),
        (YARN | {"original_max_position_embeddings": 0}, BrokenModel, "embeddings is 0"),
        (YARN | {"beta_slow": 40}, BrokenModel, "beta_fast is 32; it must be 40 or more"),
        (YARN | {"attention_factor": -1}, BrokenModel, "attention_factor is -1; it must be over 0"),
        (YARN | {"truncate": "yes"}, BrokenModel, "truncate is 'yes'; it must be of type bool"),
        ({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4},
         BrokenModel, "high_freq_factor is 4; it must be over 4"),
        ({"rope_theta": 1}, BrokenModel, "rope_theta is 1; it must be over 1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
def test_refused_rope(
    name: str, rope: Any, error: type[ModelError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says) as caught:
        read(tmp_path, **{name: rope})
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"sliding_window": 0}, BrokenModel, "sliding_window is 0; it must be 1 or more"),
        ({"sliding_window": 9.5}, BrokenModel, "sliding_window is 9.5; it must be of type int"),
        ({"max_window_layers": None}, BrokenModel, "max_window_layers is None"),
        ({"layer_types": ["full_attention"]}, BrokenModel, "names 1 layers, num_hidden_layers 3"),
        ({"layer_types": ["linear_attention"] * 3}, UnsupportedModel, "'linear_attention'"),
        ({"layer_types": [["full_attention"]] * 3}, UnsupportedModel, "layer_types names"),
        ({"sliding_window": None, "layer_types": ["sliding_attention"] * 3}, BrokenModel,
         "but no sliding_window is in use"),
        ({"mlp_bias": True}, UnsupportedModel, "biases that this architecture does not have"),
    ],
)  # fmt: skip
def test_refusals_of_qwen(
    changes: dict[str, Any], error: type[ModelError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says) as caught:
        read(tmp_path, "Qwen2ForCausalLM", use_sliding_window=True, **changes)
    assert type(caught.value) is error


def test_refusals_of_mistral(tmp_path: Path) -> None:
    with pytest.raises(BrokenModel, match="sliding_window is 4096, but use_sliding_window is fals"):
        read(tmp_path, "MistralForCausalLM", use_sliding_window=False)
    with pytest.raises(UnsupportedModel, match="attention_bias is True, which asks for biases"):
        read(tmp_path, "MistralForCausalLM", attention_bias=True)


def test_fields_that_ask_for_nothing_are_no_obstacle(tmp_path: Path) -> None:
    read(
        tmp_path, attn_logit_softcapping=None, num_experts=0, clip_qkv=None, logit_scale=1,
        partial_rotary_factor=1.0, is_causal=True, hidden_activation=None, no_rope_layers=[],
        qk_layernorm=False, auto_map={"AutoConfig": "configuration_x.Y"}, model_type="llama",
        something_new={"of": "tomorrow"}, hidden_act="swish", attention_dropout=0.1,
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '{"a": "\\ud800', "\x00"])
def test_a_config_that_is_no_object(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BrokenModel, match=re.escape(str(tmp_path / "config.json"))):
        read_model_config(tmp_path)
