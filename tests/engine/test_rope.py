"""RoPE's frequencies are those of transformers, to the last bit, whatever the parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.read_config import read_model_config
from engine.models.rope import inverse_frequencies
from kernels.rope import rope_cos_sin

pytestmark = pytest.mark.quick

factors = st.floats(1, 64) | st.integers(1, 64)
thetas = st.floats(2, 1e7) | st.sampled_from([10_000, 500_000.0, 1_000_000.0])
trained = {"original_max_position_embeddings": st.integers(1, 1 << 18)}
PARAMETERS = {
    "default": st.fixed_dictionaries({}),
    "linear": st.fixed_dictionaries({"factor": factors}),
    "llama3": st.fixed_dictionaries(
        {
            "factor": factors,
            "low_freq_factor": st.floats(0.5, 2),
            "high_freq_factor": st.integers(3, 8),
            **trained,
        }
    ),
    "yarn": st.fixed_dictionaries(
        {"factor": factors},
        optional={
            **trained,
            "beta_fast": st.floats(8, 64) | st.none(),
            "beta_slow": st.integers(1, 8) | st.none(),
            "attention_factor": st.floats(0.1, 4) | st.none(),
            "mscale": st.floats(0, 2),
            "mscale_all_dim": st.floats(0, 2),
            "truncate": st.booleans(),
        },
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rope")


@settings(deadline=None, max_examples=60)
@given(data=st.data(), theta=thetas, half=st.integers(1, 64))
@pytest.mark.parametrize("rope_type", PARAMETERS)
def test_frequencies(
    rope_type: str, data: st.DataObject, theta: float, half: int, folder: Path
) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters: dict[str, Any] = data.draw(PARAMETERS[rope_type])
    config = {
        "head_dim": 2 * half,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": rope_type, "rope_theta": theta, **parameters},
    }
    path = folder / "config.json"
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **config}))
    ours = read_model_config(folder)
    theirs = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(config))))
    frequencies = inverse_frequencies(ours.rope, ours.head_dim)
    assert torch.equal(frequencies, theirs.inv_freq)
    assert ours.rope.attention_factor == theirs.attention_scaling
    positions = torch.tensor([0, 1, 77, 4095])
    cos, sin = rope_cos_sin(positions, frequencies, torch.bfloat16, ours.rope.attention_factor)
    expected = theirs(torch.empty(1, dtype=torch.bfloat16), positions[None])
    for found, wanted in zip((cos, sin), expected, strict=True):
        assert torch.equal(found[:, 0], wanted[0, :, :half])
