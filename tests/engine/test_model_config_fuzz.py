"""Whatever `config.json` says: a model is refused in words, or computes what transformers does."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from hypothesis import event, given, settings
from hypothesis import strategies as st

from engine.errors import ModelError
from engine.loading import load_model, resolve_model
from engine.models.families import FAMILIES
from tests.support.by_hand import ByHand, load_runner
from tests.support.tiny_families import FAMILIES as TINY
from tests.support.tiny_families import LLAMA3, YARN, build_family

FIELDS = [
    "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size",
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act",
    "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
    "original_max_position_embeddings", "tie_word_embeddings", "attention_bias", "mlp_bias",
    "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "dtype",
    "torch_dtype", "eos_token_id", "quantization_config", "auto_map", "clip_qkv", "num_experts",
    "partial_rotary_factor", "is_causal", "logit_scale", "position_embedding_type",
]  # fmt: skip
ROPE_FIELDS = [
    "rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
    "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "truncate", "full_attention",
]  # fmt: skip

numbers = st.one_of(
    st.integers(-3, 70),
    st.integers(),
    st.sampled_from([1 << 16, 1 << 24, 1 << 31, 1 << 63, 10**30, 10**400, -(10**400)]),
    st.floats(),
)
words = st.text(max_size=8) | st.sampled_from(
    [*FAMILIES, "yarn", "llama3", "linear", "default", "silu", "float16", "sliding_attention",
     "full_attention", "\ud800", "\x00", "x" * 10_000]
)  # fmt: skip
scalars = st.none() | st.booleans() | numbers | words
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
rope = st.fixed_dictionaries({}, optional=dict.fromkeys(ROPE_FIELDS, scalars))
changes = st.dictionaries(st.sampled_from(FIELDS), values, min_size=1, max_size=4) | st.builds(
    dict, rope_parameters=rope, rope_scaling=st.none() | rope
)


ROPES: list[dict[str, Any] | None] = [
    None,
    {},
    {"rope_theta": 300.0},
    {"rope_type": "default", "rope_theta": 50_000},
    {"type": "linear", "factor": 3},
    {**LLAMA3, "original_max_position_embeddings": 16, "factor": 4},
    YARN,
    {"type": "yarn", "factor": 2.5},
    {**YARN, "factor": 8, "beta_fast": 16, "beta_slow": 2, "truncate": False},
    {**YARN, "attention_factor": 1.2, "original_max_position_embeddings": 16},
    {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
    {**YARN, "mscale": 0.7},
    {"rope_type": "dynamic", "factor": 2.0},
]
PLAUSIBLE: dict[str, list[Any]] = {
    "rms_norm_eps": [1e-5, 0.1, 1],
    "rope_theta": [500.0, 1_000_000],
    "rope_scaling": ROPES,
    "rope_parameters": ROPES,
    "original_max_position_embeddings": [16, 40],
    "max_position_embeddings": [100, 512],
    "sliding_window": [None, 1, 5, 21, 5000],
    "use_sliding_window": [True, False],
    "max_window_layers": [0, 1, 2, 50],
    "layer_types": [
        None,
        ["sliding_attention", "full_attention"],
        ["full_attention", "full_attention"],
        ["sliding_attention", "full_attention", "attention"],
    ],
    "hidden_act": ["silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu"],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "tie_word_embeddings": [True, False],
    "head_dim": [None, 8, 16],
    "num_key_value_heads": [None, 1, 2, 4],
    "attention_dropout": [0.5],
    "is_causal": [True, False],
}
THEIR_REFUSALS = (TypeError, StrictDataclassFieldValidationError)
plausible = st.lists(st.sampled_from(list(PLAUSIBLE)), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({n: st.sampled_from(PLAUSIBLE[n]) for n in names})
)


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3")
    build_family("qwen3 upper window", folder)
    return folder


@settings(deadline=None, max_examples=400)
@given(changes=changes, removed=st.sets(st.sampled_from(FIELDS), max_size=2))
def test_nonsense_is_refused_in_words(
    changes: dict[str, Any], removed: set[str], qwen3: Path
) -> None:
    path = qwen3 / "config.json"
    original = path.read_text()
    fields = json.loads(original) | changes
    path.write_text(json.dumps({k: v for k, v in fields.items() if k not in removed}))
    message = ""
    try:
        load_model(resolve_model(str(qwen3)), "auto", "cpu")
    except ModelError as error:
        message = str(error)
    finally:
        path.write_text(original)
    # It goes through a pipe and to a terminal.
    assert len(message.encode()) < 1000
    assert message.isprintable()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp("model") for name in TINY}
    for name, folder in folders.items():
        build_family(name, folder)
    return folders


@settings(deadline=None, max_examples=200)
@given(
    family=st.sampled_from(list(TINY)),
    changes=plausible,
    removed=st.sets(st.sampled_from(list(PLAUSIBLE)), max_size=2),
)
def test_what_is_accepted_computes_what_transformers_computes(
    family: str, changes: dict[str, Any], removed: set[str], models: dict[str, Path]
) -> None:
    from transformers import AutoModelForCausalLM

    path = models[family] / "config.json"
    original = path.read_text()
    fields = {k: v for k, v in json.loads(original).items() if k not in removed} | changes
    path.write_text(json.dumps(fields))
    try:
        hand = ByHand(load_runner(path.parent))
        model = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32)
    except ModelError:
        event("refused")
        return
    except THEIR_REFUSALS:
        event("refused by transformers alone")  # null where it wants a number
        return
    finally:
        path.write_text(original)
    event("compared")
    tokens = random.Random(0).choices(range(256), k=90)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    for start, end in [(0, 30), (30, 89), (89, 90)]:
        logits = hand.runner.logits(hand.batch(hand.part("s", tokens, start, end)))
        torch.testing.assert_close(logits[0], expected[end - 1], rtol=0, atol=1e-4)
