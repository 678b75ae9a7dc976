"""The decoder of all our families over a paged KV cache.

It is Llama's (Touvron et al., 2023, arXiv:2302.13971) with parts that a `ModelConfig` switches
on or off: biases, the normalization of queries and keys, and a sliding window in each layer.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from engine.kv_cache import KVCache
from engine.models.config import ModelConfig
from engine.models.linear import FusedLinear, NewParameter
from engine.models.rope import inverse_frequencies
from engine.models.weight import DenseWeight, Weight, packed
from kernels.attention_plan import AttentionPlan
from kernels.batch_invariant_rope import batch_invariant_cos_sin
from kernels.embedding import embed, select_rows
from kernels.gelu_and_mul import batch_invariant_gelu_and_mul, gelu_and_mul
from kernels.kv_layout import LayerKV
from kernels.paged_attention import paged_attention
from kernels.rms_norm import add_rms_norm, rms_norm
from kernels.rope import rope_cos_sin
from kernels.rope_kv_write import HeadNormWeights, rope_kv_write
from kernels.silu_and_mul import silu_and_mul


class HeadNorms(nn.Module):
    """What normalizes each head of queries and of keys."""

    def __init__(self, config: ModelConfig, new: NewParameter) -> None:
        super().__init__()
        self.eps = config.rms_norm_eps
        self.q_norm, self.k_norm = new(config.head_dim), new(config.head_dim)

    def weights(self) -> HeadNormWeights:
        return HeadNormWeights(self.q_norm, self.k_norm, self.eps)

    def checkpoint_tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield "q_norm.weight", self.q_norm
        yield "k_norm.weight", self.k_norm


class Attention(nn.Module):
    def __init__(self, config: ModelConfig, window: int | None, new: NewParameter) -> None:
        super().__init__()
        self.window, self.scale = window, config.head_dim**-0.5
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        parts = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        self.qkv_proj = FusedLinear(config.hidden_size, parts, config.qkv_bias, new)
        self.norms = HeadNorms(config, new) if config.qk_norm else None
        self.o_proj = FusedLinear(queries, {"o_proj": config.hidden_size}, config.o_bias, new)

    def forward(
        self,
        x: Tensor,
        cos_sin: tuple[Tensor, Tensor],
        kv: LayerKV,
        plan: AttentionPlan,
        rows: Tensor | None,
    ) -> Tensor:
        """Write keys and values of all tokens; return the output of `rows`, None for all."""
        norms = self.norms.weights() if self.norms is not None else None
        queries = rope_kv_write(self.qkv_proj(x), cos_sin, norms, kv, plan.slots)
        attended = paged_attention(queries, kv, plan, self.scale, self.window)
        attended = _select(attended.flatten(1), rows)
        return self.o_proj(attended)  # type: ignore[no-any-return]

    def checkpoint_tensors(self) -> Iterator[tuple[str, Tensor]]:
        for part in (self.qkv_proj, self.norms, self.o_proj):
            if part is not None:
                yield from part.checkpoint_tensors()


class GatedMLP(nn.Module):
    def __init__(self, config: ModelConfig, new: NewParameter) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_up_proj = FusedLinear(hidden, {"gate_proj": inner, "up_proj": inner}, bias, new)
        self.down_proj = FusedLinear(inner, {"down_proj": hidden}, bias, new)
        self.activation = config.activation
        self.batch_invariant = False

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self._activated(self.gate_up_proj(x)))  # type: ignore[no-any-return]

    def _activated(self, gate_up: Tensor) -> Tensor:
        if self.activation == "silu":
            return silu_and_mul(gate_up)
        gelu = batch_invariant_gelu_and_mul if self.batch_invariant else gelu_and_mul
        return gelu(gate_up, self.activation == "gelu_tanh")

    def checkpoint_tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.gate_up_proj.checkpoint_tensors()
        yield from self.down_proj.checkpoint_tensors()


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig, window: int | None, new: NewParameter) -> None:
        super().__init__()
        self.eps = config.rms_norm_eps
        self.input_layernorm = new(config.hidden_size)
        self.self_attn = Attention(config, window, new)
        self.post_attention_layernorm = new(config.hidden_size)
        self.mlp = GatedMLP(config, new)

    def forward(
        self,
        pending: Tensor | None,
        residual: Tensor,
        cos_sin: tuple[Tensor, Tensor],
        kv: LayerKV,
        plan: AttentionPlan,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add `pending` and the attention to `residual` in place.

        Args:
            rows: the tokens whose output is wanted, None for all.

        Returns:
            The MLP's output and the residual. The output is the next layer's `pending`, so that
            each addition happens together with the normalization that follows it. The first
            layer has none.
        """
        if pending is None:
            x = rms_norm(residual, self.input_layernorm, self.eps)
        else:
            x = add_rms_norm(pending, residual, self.input_layernorm, self.eps)
        x = self.self_attn(x, cos_sin, kv, plan, rows)
        residual = _select(residual, rows)
        x = add_rms_norm(x, residual, self.post_attention_layernorm, self.eps)
        return self.mlp(x), residual

    def checkpoint_tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield "input_layernorm.weight", self.input_layernorm
        yield "post_attention_layernorm.weight", self.post_attention_layernorm
        for name, tensor in self.self_attn.checkpoint_tensors():
            yield f"self_attn.{name}", tensor
        for name, tensor in self.mlp.checkpoint_tensors():
            yield f"mlp.{name}", tensor


class Decoder(nn.Module):
    """A decoder with arbitrary weights; `checkpoint_tensors` says where true ones go."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        new = NewParameter(dtype, device)
        self.config = config
        self.batch_invariant = False
        self.embed_tokens = new(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, w, new) for w in config.windows)
        self.norm = new(config.hidden_size)
        self.lm_head: Weight = DenseWeight(
            self.embed_tokens
            if config.tie_word_embeddings
            else new(config.vocab_size, config.hidden_size)
        )
        self.inv_freq: Tensor
        frequencies = inverse_frequencies(config.rope, config.head_dim)
        self.register_buffer("inv_freq", frequencies.to(device))

    def checkpoint_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Names in a checkpoint, each with the part of our weights that it fills."""
        yield "model.embed_tokens.weight", self.embed_tokens
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            for name, tensor in layer.checkpoint_tensors():
                yield f"model.layers.{i}.{name}", tensor
        yield "model.norm.weight", self.norm
        if not self.config.tie_word_embeddings:
            yield "lm_head.weight", self.lm_head.dense()

    def pack(self, batch_invariant: bool = False) -> None:
        """Bring the matrices into the form that the device multiplies fastest by.

        To be called once, when the checkpoint's values are in. What `checkpoint_tensors` gives
        afterwards can be read but no longer filled. A tied embedding keeps its rows as well, as
        tokens are looked up in them.

        Args:
            batch_invariant: `forward` is to give a token the same bits whatever else the step
                computes; float32 on a CPU, with a plan of attention that is batch-invariant too.
        """
        self.batch_invariant = batch_invariant
        for layer in [module for module in self.modules() if isinstance(module, FusedLinear)]:
            layer.pack(batch_invariant)
        for mlp in [module for module in self.modules() if isinstance(module, GatedMLP)]:
            mlp.batch_invariant = batch_invariant
        self.lm_head = packed(self.lm_head, batch_invariant)

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        logit_rows: Tensor,
    ) -> Tensor:
        """Write a step's keys and values, and return the logits of chosen tokens.

        Args:
            token_ids: [num_tokens], int64, the sequences of the step one after another.
            positions: [num_tokens], int64, each token's place in its sequence.
            kv_cache: changed in place at the plan's slots.
            plan: which tokens attend to what.
            logit_rows: [rows], int64, indices into the step's tokens, ascending.

        Returns:
            [rows, vocab_size], in the model's dtype.
        """
        return self.logits(self.hidden_states(token_ids, positions, kv_cache, plan, logit_rows))

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden_size], of `hidden_states`, to [rows, vocab_size]."""
        return self.lm_head.multiply(hidden)

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        rows: Tensor | None = None,
    ) -> Tensor:
        """As `forward`, but what logits are made of: [rows, hidden_size], after the final norm.

        Without `rows`, those of all tokens.
        """
        residual = embed(token_ids, self.embed_tokens)
        cos_sin = self._cos_sin(positions, residual.dtype)
        # After the last attention, only the chosen tokens matter.
        chosen = rows if rows is not None and rows.shape[0] < token_ids.shape[0] else None
        last = len(self.layers) - 1
        pending: Tensor | None = None
        for i, layer in enumerate(self.layers):
            pending, residual = layer(
                pending, residual, cos_sin, kv_cache.layer(i), plan, chosen if i == last else None
            )
        assert pending is not None  # a config has at least one layer
        return add_rms_norm(pending, residual, self.norm, self.config.rms_norm_eps)

    def _cos_sin(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        scale = self.config.rope.attention_factor
        if self.batch_invariant:
            return batch_invariant_cos_sin(positions, self.inv_freq, scale)
        return rope_cos_sin(positions, self.inv_freq, dtype, scale)


def _select(x: Tensor, rows: Tensor | None) -> Tensor:
    return x if rows is None else select_rows(x, rows)
