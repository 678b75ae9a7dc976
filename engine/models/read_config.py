"""Reading a model's `config.json`, and the tokens that end a text."""

from __future__ import annotations

from pathlib import Path

from engine.errors import BrokenModel
from engine.models.config import ModelConfig, RopeConfig
from engine.models.families import family_of
from engine.models.fields import Fields, read_json, shown
from engine.models.refusals import ACTIVATIONS, refuse_unsupported
from engine.models.rope_config import read_rope

# No model is near these. They keep a nonsensical size from taking the machine's memory before
# the checkpoint contradicts it.
_LARGEST = {
    "vocab_size": 1 << 28,
    "hidden_size": 1 << 24,
    "intermediate_size": 1 << 26,
    "num_hidden_layers": 1 << 16,
    "num_attention_heads": 1 << 16,
    "num_key_value_heads": 1 << 16,
    "head_dim": 1 << 16,
    "max_position_embeddings": 1 << 31,
}


def read_model_config(folder: Path) -> ModelConfig:
    """Read and check `config.json`.

    Raises:
        BrokenModel: a field is missing, of a wrong type or contradicts another.
        UnsupportedModel: the model needs something that our decoder lacks.
    """
    path = folder / "config.json"
    raw = read_json(path)
    architecture = _architecture(Fields(raw, path))
    family = family_of(architecture)
    fields = Fields(raw, path, family.defaults)
    refuse_unsupported(fields, architecture, family)
    num_layers, num_heads = _size(fields, "num_hidden_layers"), _size(fields, "num_attention_heads")
    hidden_size = _size(fields, "hidden_size")
    rope = read_rope(fields)
    return ModelConfig(
        architecture=architecture,
        vocab_size=_size(fields, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_size(fields, "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(fields, num_heads),
        head_dim=_head_dim(fields, hidden_size // num_heads),
        max_model_len=_max_model_len(fields, rope),
        rms_norm_eps=_rms_norm_eps(fields),
        rope=rope,
        tie_word_embeddings=fields.read("tie_word_embeddings", bool),
        qkv_bias=_switch(fields, family.qkv_bias),
        o_bias=_switch(fields, family.o_bias),
        mlp_bias=_switch(fields, family.mlp_bias),
        qk_norm=family.qk_norm,
        activation=ACTIVATIONS[fields.get("hidden_act") or "silu"],
        windows=family.windows(fields, num_layers),
        checkpoint_dtype=_checkpoint_dtype(fields),
    )


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
            raise BrokenModel(
                f"{path}: eos_token_id is {shown(eos)}; it must be an id or a list of ids"
            )
        return frozenset(ids)
    return frozenset()


def _architecture(fields: Fields) -> str:
    architectures = fields.read("architectures", list)
    if not architectures or not isinstance(architectures[0], str):
        raise BrokenModel(
            f"{fields.path}: architectures is {shown(architectures)}; it must name a class"
        )
    return architectures[0]


def _size(fields: Fields, name: str) -> int:
    return _in_range(fields, name, fields.read(name, int))


def _in_range(fields: Fields, name: str, size: int) -> int:
    if size < 1:
        raise BrokenModel(f"{fields.path}: {name} is {size}; it must be 1 or more")
    if size > _LARGEST[name]:
        raise BrokenModel(
            f"{fields.path}: {name} is {shown(size)}, more than any model has; the most that is "
            f"read is {_LARGEST[name]}"
        )
    return size


def _num_kv_heads(fields: Fields, num_heads: int) -> int:
    count = fields.read_nullable("num_key_value_heads", int)
    if count is None:
        return num_heads
    if num_heads % _in_range(fields, "num_key_value_heads", count):
        raise BrokenModel(
            f"{fields.path}: {num_heads} attention heads do not divide among {count} "
            "key-value heads"
        )
    return count


def _head_dim(fields: Fields, share: int) -> int:
    given = fields.read_nullable("head_dim", int)
    head_dim = _in_range(fields, "head_dim", share if given is None else given)
    if head_dim % 2:
        raise BrokenModel(f"{fields.path}: head_dim is {head_dim}; RoPE needs an even number")
    return head_dim


def _max_model_len(fields: Fields, rope: RopeConfig) -> int:
    """The longest sequence; files with YaRN often still name the length before it."""
    length = _size(fields, "max_position_embeddings")
    if rope.type == "yarn":
        length = max(length, int(rope.original_max_len * rope.factor))
    return _in_range(fields, "max_position_embeddings", length)


def _rms_norm_eps(fields: Fields) -> float:
    eps = fields.read("rms_norm_eps", float)
    if eps < 0:
        raise BrokenModel(f"{fields.path}: rms_norm_eps is {eps}; it must not be negative")
    return eps


def _switch(fields: Fields, rule: bool | str) -> bool:
    return rule if isinstance(rule, bool) else fields.read(rule, bool)


def _checkpoint_dtype(fields: Fields) -> str | None:
    name = fields.get("dtype") or fields.get("torch_dtype")
    if name is None:
        return None
    if not isinstance(name, str):
        raise BrokenModel(
            f"{fields.path}: dtype is {shown(name)}; it must be a name such as 'bfloat16'"
        )
    return name.removeprefix("torch.")
