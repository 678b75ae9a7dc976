"""How a model turns positions into angles, read from its `config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.errors import BrokenModel, UnsupportedModel
from engine.models.config import RopeConfig
from engine.models.fields import Fields, shown

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
_TRAINED_LEN = "original_max_position_embeddings"


def read_rope(fields: Fields) -> RopeConfig:
    """Read `rope_parameters`, or `rope_theta` and `rope_scaling` of older files.

    Raises:
        BrokenModel: a parameter is missing, of a wrong type or out of range.
        UnsupportedModel: a type of RoPE that we lack, or another one in some layers.
    """
    parameters = _parameters(fields)
    rope_type = parameters.get("rope_type") or parameters.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        raise UnsupportedModel(
            f"{fields.path}: the RoPE type is {shown(rope_type)}; supported are "
            f"{', '.join(ROPE_TYPES)}"
        )
    theta = _number(parameters, "rope_theta", over=1)
    match rope_type:
        case "linear":
            return RopeConfig("linear", theta, _number(parameters, "factor", least=1))
        case "llama3":
            return _llama3(parameters, theta)
        case "yarn":
            return _yarn(parameters, theta)
    return RopeConfig("default", theta)


def _parameters(fields: Fields) -> Fields:
    """The parameters in one object, wherever the file has them."""
    # transformers 5 writes rope_parameters; before, rope_theta and rope_scaling were apart.
    found = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    if not isinstance(found, Mapping):
        raise BrokenModel(f"{fields.path}: rope_scaling is {shown(found)}; it must be an object")
    by_layer = [name for name, value in found.items() if isinstance(value, Mapping)]
    if by_layer:
        raise UnsupportedModel(
            f"{fields.path}: RoPE with parameters of its own for {shown(by_layer)} is not supported"
        )
    values = {
        "rope_theta": fields.get("rope_theta"),
        "beta_fast": 32,
        "beta_slow": 1,
        "truncate": True,
        _TRAINED_LEN: fields.get("max_position_embeddings"),
        **{name: value for name, value in found.items() if value is not None},
    }
    # Beside the parameters it wins over the one among them: Phi-3 began that.
    if fields.get(_TRAINED_LEN) is not None:
        values[_TRAINED_LEN] = fields.get(_TRAINED_LEN)
    return Fields(values, fields.path)


def _llama3(parameters: Fields, theta: float) -> RopeConfig:
    low = _number(parameters, "low_freq_factor", over=0)
    return RopeConfig(
        type="llama3",
        theta=theta,
        factor=_number(parameters, "factor", least=1),
        original_max_len=_trained_len(parameters),
        low_freq_factor=low,
        high_freq_factor=_number(parameters, "high_freq_factor", over=low),
    )


def _yarn(parameters: Fields, theta: float) -> RopeConfig:
    trained_len = _trained_len(parameters)
    beta_slow = _number(parameters, "beta_slow", over=0)
    factor = _number(parameters, "factor", least=1)
    return RopeConfig(
        type="yarn",
        theta=theta,
        factor=factor,
        original_max_len=trained_len,
        beta_slow=beta_slow,
        beta_fast=_number(parameters, "beta_fast", least=beta_slow),
        truncate=parameters.read("truncate", bool),
        attention_factor=_yarn_attention_factor(parameters, factor),
    )


def _yarn_attention_factor(parameters: Fields, factor: float) -> float:
    """The given one, else the paper's, as DeepSeek's `mscale` parameters bend it."""
    if parameters.get("attention_factor") is not None:
        return _number(parameters, "attention_factor", over=0)

    def grown_by(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0

    if parameters.get("mscale") and parameters.get("mscale_all_dim"):
        scale = _number(parameters, "mscale", over=0)
        return grown_by(scale) / grown_by(_number(parameters, "mscale_all_dim", over=0))
    return grown_by(1.0)


def _trained_len(parameters: Fields) -> int:
    length = parameters.read(_TRAINED_LEN, int)
    if not 1 <= length < 1 << 31:
        raise BrokenModel(f"{parameters.path}: {_TRAINED_LEN} is {length}; it must be 1 or more")
    return length


def _number(
    parameters: Fields, name: str, *, least: float = -math.inf, over: float = -math.inf
) -> float:
    value = parameters.read(name, float)
    if value < least or value <= over:
        bound = f"over {over:g}" if least == -math.inf else f"{least:g} or more"
        raise BrokenModel(f"{parameters.path}: the RoPE's {name} is {value:g}; it must be {bound}")
    return value
