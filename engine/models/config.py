"""What a model is, read from its `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import BrokenModel, UnsupportedModel
from engine.models.fields import read_field, read_json

ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How positions turn into angles.

    Attributes:
        type: `default`; `linear` divides all frequencies by `factor`; `llama3` divides
            the slow ones and interpolates those between the two bounds.
        theta: base of the frequencies.
        low_freq_factor, high_freq_factor: bounds of `llama3`, in turns within the
            original length.
        original_max_len: length that the model was first trained on, for `llama3`.
    """

    type: str = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and variants of a decoder.

    Attributes:
        architecture: class name in transformers, the key of our registry.
        max_model_len: longest sequence that the model was made for, in tokens.
        checkpoint_dtype: the dtype that `config.json` names, None where it names none.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_model_len: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    checkpoint_dtype: str | None


def read_model_config(folder: Path) -> ModelConfig:
    """Read and check `config.json`.

    Raises:
        BrokenModel: a field is missing, of a wrong type or contradicts another.
        UnsupportedModel: the model needs an activation, RoPE or format that we lack.
    """
    path = folder / "config.json"
    raw = read_json(path)
    _refuse_unsupported(raw, path)
    num_heads = read_field(raw, "num_attention_heads", int, path)
    num_kv_heads = read_field(raw, "num_key_value_heads", int, path, num_heads)
    hidden_size = read_field(raw, "hidden_size", int, path)
    config = ModelConfig(
        architecture=_architecture(raw, path),
        vocab_size=read_field(raw, "vocab_size", int, path),
        hidden_size=hidden_size,
        intermediate_size=read_field(raw, "intermediate_size", int, path),
        num_layers=read_field(raw, "num_hidden_layers", int, path),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=read_field(raw, "head_dim", int, path, hidden_size // max(num_heads, 1)),
        max_model_len=read_field(raw, "max_position_embeddings", int, path, 2048),
        rms_norm_eps=read_field(raw, "rms_norm_eps", float, path, 1e-6),
        rope=_rope(raw, path),
        tie_word_embeddings=read_field(raw, "tie_word_embeddings", bool, path, False),
        attention_bias=read_field(raw, "attention_bias", bool, path, False),
        mlp_bias=read_field(raw, "mlp_bias", bool, path, False),
        checkpoint_dtype=_checkpoint_dtype(raw, path),
    )
    _check_sizes(config, path)
    return config


def read_eos_token_ids(folder: Path) -> frozenset[int]:
    """All end-of-sequence ids of `generation_config.json`, else those of `config.json`."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.is_file():
            continue
        eos = read_json(path).get("eos_token_id")
        if eos is None:
            continue
        ids = eos if isinstance(eos, list) else [eos]
        if any(type(i) is not int for i in ids):
            raise BrokenModel(f"{path}: eos_token_id is {eos!r}; it must be an id or a list of ids")
        return frozenset(ids)
    return frozenset()


def _refuse_unsupported(raw: Mapping[str, Any], path: Path) -> None:
    quantization = raw.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
        raise UnsupportedModel(
            f"{path}: the checkpoint is quantized ({method or 'unnamed method'}); pagemill reads "
            "float32, bfloat16 and float16 weights, and .gguf files. Use the model's original "
            "checkpoint"
        )
    activation = raw.get("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModel(f"{path}: hidden_act is {activation!r}; only 'silu' is supported")


def _architecture(raw: Mapping[str, Any], path: Path) -> str:
    architectures = read_field(raw, "architectures", list, path)
    if not architectures or not isinstance(architectures[0], str):
        raise BrokenModel(f"{path}: architectures is {architectures!r}; it must name a class")
    return architectures[0]


def _rope(raw: Mapping[str, Any], path: Path) -> RopeConfig:
    # transformers 5 writes rope_parameters; before, rope_theta and rope_scaling were apart.
    found = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(found, Mapping):
        raise BrokenModel(f"{path}: rope_scaling is {found!r}; it must be an object")
    parameters = {k: v for k, v in found.items() if v is not None}
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if rope_type not in ROPE_TYPES:
        raise UnsupportedModel(
            f"{path}: the RoPE type is {rope_type!r}; supported are {', '.join(ROPE_TYPES)}"
        )
    for source in (parameters, raw):
        if source.get("partial_rotary_factor") not in (None, 1, 1.0):
            raise UnsupportedModel(f"{path}: partial_rotary_factor other than 1 is not supported")
    theta = read_field(raw, "rope_theta", float, path, 10_000.0)
    theta = read_field(parameters, "rope_theta", float, path, theta)
    if rope_type == "default":
        return RopeConfig(theta=theta)
    factor = read_field(parameters, "factor", float, path)
    if rope_type == "linear":
        return RopeConfig("linear", theta, factor)
    max_len = read_field(raw, "max_position_embeddings", int, path, 2048)
    max_len = read_field(parameters, "original_max_position_embeddings", int, path, max_len)
    return RopeConfig(
        type="llama3",
        theta=theta,
        factor=factor,
        low_freq_factor=read_field(parameters, "low_freq_factor", float, path),
        high_freq_factor=read_field(parameters, "high_freq_factor", float, path),
        original_max_len=read_field(raw, "original_max_position_embeddings", int, path, max_len),
    )


def _checkpoint_dtype(raw: Mapping[str, Any], path: Path) -> str | None:
    name = raw.get("dtype") or raw.get("torch_dtype")
    if name is None:
        return None
    if not isinstance(name, str):
        raise BrokenModel(f"{path}: dtype is {name!r}; it must be a name such as 'bfloat16'")
    return name.removeprefix("torch.")


def _check_sizes(config: ModelConfig, path: Path) -> None:
    for name in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_layers",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "max_model_len",
    ):
        if getattr(config, name) < 1:
            raise BrokenModel(f"{path}: {name} is {getattr(config, name)}; it must be 1 or more")
    if config.num_heads % config.num_kv_heads:
        raise BrokenModel(
            f"{path}: {config.num_heads} attention heads do not divide among "
            f"{config.num_kv_heads} key-value heads"
        )
    if config.head_dim % 2:
        raise BrokenModel(f"{path}: head_dim is {config.head_dim}; RoPE needs an even number")
