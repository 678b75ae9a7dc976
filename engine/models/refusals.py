"""Fields of `config.json` that would change the computation in a way that we do not compute.

The architecture alone does not say everything: files of fine-tuned and converted models carry
fields that ask for more. A model is refused rather than computed without what it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import BrokenModel, UnsupportedModel
from engine.models.families import Family
from engine.models.fields import Fields, shown

# Each asks for its feature unless it is null, false, zero or empty.
_FEATURES = {
    "add_cross_attention": "cross-attention",
    "alibi": "ALiBi",
    "attention_chunk_size": "chunked attention",
    "attention_multiplier": "another scale of attention",
    "attn_logit_softcapping": "softcapping of attention",
    "clip_qkv": "clipping of queries, keys and values",
    "cross_attention_layers": "cross-attention",
    "dual_chunk_attention_config": "chunked attention",
    "final_logit_softcapping": "softcapping of logits",
    "interleaved_sliding_window": "another pattern of sliding windows",
    "is_encoder_decoder": "an encoder",
    "kv_lora_rank": "latent attention",
    "moe_intermediate_size": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
    "no_rope_layer_interval": "layers without RoPE",
    "no_rope_layers": "layers without RoPE",
    "num_experts": "a mixture of experts",
    "num_kv_shared_layers": "layers that share keys and values",
    "num_local_experts": "a mixture of experts",
    "parallel_attn": "attention beside the MLP",
    "per_layer_config": "layers of different sizes",
    "query_pre_attn_scalar": "another scale of attention",
    "rope_interleave": "interleaved RoPE",
    "rope_interleaved": "interleaved RoPE",
    "rope_local_base_freq": "another RoPE in some layers",
    "sliding_window_pattern": "another pattern of sliding windows",
    "use_bidirectional_attention": "attention to later tokens",
    "use_mla": "latent attention",
    "use_parallel_residual": "attention beside the MLP",
}
_QK_NORMS = ("qk_layernorm", "qk_norm", "use_qk_norm")
_BIASES = ("attention_bias", "mlp_bias", "use_bias")
# Each changes nothing only where it is 1.
_FACTORS = (
    "embedding_multiplier",
    "logit_scale",
    "logits_scaling",
    "partial_rotary_factor",
    "residual_multiplier",
    "rotary_pct",
    "scale_depth",
    "scale_emb",
)
# What each name of transformers is called by us.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_POSITIONS = ("rope", "rotary", "absolute")  # `absolute` is an old default that no one reads


def refuse_unsupported(fields: Fields, architecture: str, family: Family) -> None:
    """Refuse a model that asks for what our decoder lacks.

    Raises:
        UnsupportedModel: a field asks for something that we do not compute.
        BrokenModel: `architectures` and `model_type` name two families.
    """
    model_type = fields.get("model_type")
    if model_type is not None and model_type not in family.model_types:
        raise BrokenModel(
            f"{fields.path}: architectures names {architecture}, but model_type is "
            f"{shown(model_type)}"
        )
    _refuse_quantization(fields)
    _refuse_own_code(fields)
    _refuse_activations(fields)
    for name, feature in _FEATURES.items():
        _refuse_if(bool(fields.get(name)), fields, name, feature)
    for name in _QK_NORMS:
        wanted = bool(fields.get(name)) and not family.qk_norm
        _refuse_if(wanted, fields, name, "normalization of queries and keys")
    for name in _BIASES:
        # Qwen2 has its biases whatever the file says.
        fixed = name == "attention_bias" and family.qkv_bias is True
        wanted = bool(fields.get(name)) and not family.decides(name) and not fixed
        _refuse_if(wanted, fields, name, "biases that this architecture does not have")
    for name in _FACTORS:
        _refuse_if(fields.get(name) not in (None, 1), fields, name, "scaling other than by 1")
    _refuse_if(fields.get("is_causal") is False, fields, "is_causal", "attention to later tokens")
    position = fields.get("position_embedding_type")
    _refuse_if(
        position not in (None, *_POSITIONS), fields, "position_embedding_type", "other positions"
    )


def _refuse_if(wanted: bool, fields: Fields, name: str, feature: str) -> None:
    if wanted:
        raise UnsupportedModel(
            f"{fields.path}: {name} is {shown(fields.get(name))}, which asks for {feature}; "
            "that is not supported"
        )


def _refuse_activations(fields: Fields) -> None:
    used = fields.get("hidden_act") or "silu"
    if not isinstance(used, str) or used not in ACTIVATIONS:
        raise UnsupportedModel(
            f"{fields.path}: hidden_act is {shown(used)}; supported are {', '.join(ACTIVATIONS)}"
        )
    # Our families do not read this one.
    other = fields.get("hidden_activation")
    if other is not None and ACTIVATIONS.get(str(other)) != ACTIVATIONS[used]:
        raise UnsupportedModel(
            f"{fields.path}: hidden_activation is {shown(other)}, but hidden_act is {shown(used)}"
        )


def _refuse_quantization(fields: Fields) -> None:
    quantization = fields.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
        raise UnsupportedModel(
            f"{fields.path}: the checkpoint is quantized ({shown(method or 'unnamed method')}); "
            "pagemill reads float32, bfloat16 and float16 weights, and .gguf files. Use the "
            "model's original checkpoint"
        )


def _refuse_own_code(fields: Fields) -> None:
    """A model that brings its own code may compute anything under a well-known name."""
    code = fields.get("auto_map")
    for name, target in code.items() if isinstance(code, Mapping) else ():
        if str(name).startswith("AutoModel"):
            raise UnsupportedModel(
                f"{fields.path}: auto_map names {shown(target)}, code of the model's own, which "
                "is never run. If the model is a plain one, remove auto_map from config.json"
            )
