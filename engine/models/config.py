"""What a model is: its sizes and variants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How positions turn into angles.

    Attributes:
        type: `default`; `linear` divides all frequencies by `factor`; `llama3` divides
            the slow ones and interpolates those between two bounds; `yarn` does so with a
            ramp over the dimensions.
        theta: base of the frequencies.
        original_max_len: length that the model was first trained on, for `llama3` and `yarn`.
        low_freq_factor, high_freq_factor: bounds of `llama3`, in turns within the
            original length.
        beta_slow, beta_fast: bounds of `yarn`, in turns within the original length.
        truncate: whether the bounds of `yarn` are rounded outwards to whole dimensions.
        attention_factor: what cosine and sine are multiplied by.
    """

    type: str = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_len: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_slow: float = 1.0
    beta_fast: float = 32.0
    truncate: bool = True
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and variants of a decoder. One decoder serves all families; these tell them apart.

    Attributes:
        architecture: class name in transformers, the key of our families.
        head_dim: width of a head; heads times it need not be `hidden_size`.
        max_model_len: longest sequence that the model was made for, in tokens.
        qkv_bias: whether the query, key and value projections have biases.
        o_bias: whether the output projection of the attention has one.
        qk_norm: whether each head of queries and keys is normalized before RoPE.
        activation: of the gated MLP, `silu`, `gelu` or `gelu_tanh` (GELU's approximation by tanh).
        windows: the sliding window of each layer in tokens, None where it has none.
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
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    activation: str
    windows: tuple[int | None, ...]
    checkpoint_dtype: str | None
