"""Settings that cannot work are refused, with the setting's name."""

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError, RequestError
from engine.sampling_params import SamplingParams

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("dtype", "int3"),
        ("block_size", 7),
        ("num_blocks", 0),
        ("gpu_memory_utilization", 0.0),
        ("gpu_memory_utilization", 1.5),
        ("max_model_len", 0),
        ("max_num_seqs", 0),
        ("max_num_batched_tokens", 0),
        ("threads", -1),
    ],
)
def test_a_bad_setting_is_named(field, value):
    with pytest.raises(ConfigError, match=field):
        EngineConfig.from_mapping({"model": "m", field: value})


def test_an_unknown_setting_is_named():
    with pytest.raises(ConfigError, match="blok_size"):
        EngineConfig.from_mapping({"model": "m", "blok_size": 16})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", ("",)),
    ],
)
def test_a_bad_parameter_is_named(field, value):
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.code == "invalid_parameter"
    assert caught.value.field == field
