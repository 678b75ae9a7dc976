"""A tiny GGUF file made from a tiny model, as llama.cpp's converter would write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_tiny_gguf(
    path: Path,
    model: Any,
    tokenizer: Any,
    *,
    metadata: dict[str, Any] | None = None,
    architecture: str = "llama",
    extra_tensors: tuple[str, ...] = (),
    kind: str = "F32",
    kv_heads: bool = True,
    vocab_size: int | None = None,
) -> None:
    """Write a transformers model whose vocabulary is one more than the tokenizer's.

    Args:
        metadata: string, integer or float keys to add.
        architecture: llama.cpp's name for it; Mistral is `llama` there.
        extra_tensors: names of tensors to add, of 8 ones each.
        kind: how matrices are stored, such as Q4_1; vectors are float32 in any file.
        kv_heads: whether it says how many heads keys and values have.
        vocab_size: what it says of that, if not the truth.
    """
    import gguf
    import numpy as np
    from gguf import GGMLQuantizationType

    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if kv_heads:
        writer.add_head_count_kv(config.num_key_value_heads)
    if architecture == "qwen3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    elif architecture == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(vocab_size or config.vocab_size)
    _add_tokenizer(writer, tokenizer)
    for key, value in (metadata or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
        add[type(value)](key, value)
    turned = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        heads = turned if architecture == "llama" else {}
        array = tensor.numpy()
        for part, count in heads.items():
            if part in name:
                # llama.cpp turns neighbouring dimensions together, Llama in transformers halves.
                halves = array.reshape(count, 2, -1, array.shape[1])
                array = halves.swapaxes(1, 2).reshape(array.shape)
        stored = GGMLQuantizationType[kind if array.ndim > 1 else "F32"]
        data = gguf.quantize(np.ascontiguousarray(array), stored)
        writer.add_tensor(_gguf_name(name), data, raw_dtype=stored)
    for name in extra_tensors:
        writer.add_tensor(name, np.ones(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any, tokenizer: Any) -> None:
    """The tokenizer's tokens and one more: the format cannot store an empty list of merges."""
    tokens = [*tokenizer.convert_ids_to_tokens(range(len(tokenizer))), "!!"]
    special = set(tokenizer.added_tokens_decoder)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if i in special else 1 for i in range(len(tokens))])
    writer.add_token_merges(["! !"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)


def _gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{_NAMES[rest]}.{kind}"
    return f"{_NAMES[stem]}.{kind}"
