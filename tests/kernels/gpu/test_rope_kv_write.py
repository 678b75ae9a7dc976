"""Head norms, rotation and storing on the GPU against the reference, in the interpreter."""

from __future__ import annotations

import pytest
import torch

from kernels import rope_kv_write as public
from kernels.gpu.rope_kv_write import rope_kv_write
from kernels.kv_layout import LayerKV
from kernels.kv_quantization import QUANTIZED
from kernels.rope import rope_cos_sin
from kernels.rope_kv_write import HeadNormWeights, rope_kv_write_reference
from tests.kernels.gpu.attention_case import AttentionCase
from tests.support.gpu_kernels import serving

MODEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
KV_DTYPES = (*MODEL_DTYPES, *QUANTIZED)
BLOCKS, BLOCK_SIZE = 4, 8


def storage(head_dim: int, kv_heads: int, dtype: torch.dtype) -> LayerKV:
    """Every bit of it is set, which is NaN where the format has one."""
    kv = LayerKV.allocate(BLOCKS, BLOCK_SIZE, kv_heads, head_dim, dtype=dtype)
    for stored in parts(kv):
        stored.fill_(-1)
    return kv


def parts(kv: LayerKV) -> list[torch.Tensor]:
    """The bits of all that is stored."""
    stored = (kv.keys, kv.values, kv.key_scales, kv.value_scales)
    return [part.view(torch.uint8) for part in stored if part is not None]


class Step:
    """What a step brings: tokens, their angles and slots."""

    def __init__(
        self, tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype,
        *, normalized: bool = False,
    ) -> None:  # fmt: skip
        self.kv_heads, self.head_dim = kv_heads, head_dim
        self.qkv = torch.randn(tokens, (heads + 2 * kv_heads) * head_dim).mul_(2).to(dtype)
        self.cos_sin = rope_cos_sin(
            torch.randint(0, 9000, (tokens,)), torch.rand(head_dim // 2), dtype
        )
        weights = (torch.randn(head_dim).to(dtype) for _ in range(2))
        self.norms = HeadNormWeights(*weights, 1e-6) if normalized else None
        self.slots = torch.randperm(BLOCKS * BLOCK_SIZE)[:tokens]

    def run(self, kv: LayerKV, rows: slice = slice(None)) -> torch.Tensor:
        weights = (self.norms.queries, self.norms.keys, self.norms.eps) if self.norms else None
        cos, sin = self.cos_sin
        return rope_kv_write(
            self.qkv[rows], cos[rows], sin[rows], *(weights or (None, None, 0.0)),
            kv.keys, kv.values, kv.key_scales, kv.value_scales, self.slots[rows],
        )  # fmt: skip

    def reference(self, kv: LayerKV) -> torch.Tensor:
        kept = self.slots >= 0
        rows = self.qkv[kept], tuple(part[kept] for part in self.cos_sin)
        rope_kv_write_reference(rows[0], rows[1], self.norms, kv, self.slots[kept].long())
        spare = storage(self.head_dim, self.kv_heads, kv.keys.dtype)
        slots = torch.arange(len(self.slots))
        return rope_kv_write_reference(self.qkv, self.cos_sin, self.norms, spare, slots)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("dtype", MODEL_DTYPES)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_without_norms_every_bit_is_that_of_the_reference(
    head_dim: int, dtype: torch.dtype, kv_dtype: torch.dtype
) -> None:
    step = Step(5, 3, 2, head_dim, dtype)
    step.slots[2] = -1
    ours, expected = (storage(head_dim, 2, kv_dtype) for _ in range(2))
    queries = step.run(ours)
    assert torch.equal(queries, step.reference(expected))
    for one, other in zip(parts(ours), parts(expected), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("dtype", MODEL_DTYPES)
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_with_norms_it_is_near_the_reference(
    head_dim: int, dtype: torch.dtype, kv_dtype: torch.dtype
) -> None:
    step = Step(4, 4, 1, head_dim, dtype, normalized=True)
    ours, expected = (storage(head_dim, 1, kv_dtype) for _ in range(2))
    torch.testing.assert_close(step.run(ours), step.reference(expected))
    # A number next to the middle between two of the format may be rounded to the other one.
    steps = {torch.int8: 1 / 127, torch.float8_e4m3fn: 1 / 8, torch.float8_e5m2: 1 / 4}
    step_of_format = steps.get(kv_dtype, 2 * max(torch.finfo(t).eps for t in (dtype, torch.half)))
    for one, other in zip(ours.read(range(BLOCKS)), expected.read(range(BLOCKS)), strict=True):
        found, wanted = one.float()[step.slots], other.float()[step.slots]
        assert ((found - wanted).abs() <= step_of_format * wanted.abs().amax(-1, True)).all()


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_token_alone_has_the_bits_that_it_has_among_others(kv_dtype: torch.dtype) -> None:
    step = Step(9, 6, 2, 64, torch.bfloat16, normalized=True)
    together, alone = (storage(64, 2, kv_dtype) for _ in range(2))
    queries = step.run(together)
    for i in range(9):
        assert torch.equal(step.run(alone, slice(i, i + 1))[0], queries[i])
    for one, other in zip(parts(alone), parts(together), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kv_dtype", [*QUANTIZED, torch.float16, torch.float32])
def test_values_that_are_not_finite_are_zeros_whose_key_is_nan(kv_dtype: torch.dtype) -> None:
    step = Step(8, 1, 1, 64, torch.float32)
    values = step.qkv[:, 128:]
    values[1, 3], values[2, 40], values[3, 0], values[3, 63] = torch.nan, torch.inf, -torch.inf, 7
    values[4], values[5], values[6] = 0, -1e-40, torch.linspace(-1e-30, 1e-30, 64)
    step.qkv[7, 64] = torch.nan  # of a key
    ours, expected = (storage(64, 1, kv_dtype) for _ in range(2))
    step.run(ours)
    step.reference(expected)
    keys, stored = (part[step.slots].float() for part in ours.read(range(BLOCKS)))
    broken = torch.tensor([i in (1, 2, 3) for i in range(8)])
    assert keys[:7].isnan().flatten(1).all(1).equal(broken[:7])
    assert keys[7].isnan().any()
    assert not stored[broken].any()
    if ours.key_scales is not None and ours.value_scales is not None:
        broken[7] = True
        assert ours.key_scales.flatten()[step.slots].isnan().equal(broken)
        assert (ours.value_scales.flatten()[step.slots[1:6]] == 1).all()
    wanted = expected.read(range(BLOCKS))[1][step.slots].float()
    torch.testing.assert_close(stored, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("kv_dtype", [torch.float32, *QUANTIZED])
@pytest.mark.parametrize("first", [0, 64], ids=["all of it", "its value"])
def test_a_token_that_is_not_finite_spoils_none_before_it(
    kv_dtype: torch.dtype, first: int
) -> None:
    """All are queries of one tile, where the probability of a later token is 0."""
    case = AttentionCase.build([(30, 30)], kv_dtype=kv_dtype)
    qkv = torch.randn(30, 5 * 16)
    qkv[20, first:] = torch.nan
    turned = torch.ones(30, 1, 8), torch.zeros(30, 1, 8)
    storage = case.kv.keys, case.kv.values, case.kv.key_scales, case.kv.value_scales
    rope_kv_write(qkv, *turned, None, None, 0.0, *storage, case.metadata.slots)
    found = case.run(case.plan())
    assert found[:20].isfinite().all()
    assert found[20:].isnan().all()


def test_slots_of_32_bits_and_rows_of_a_wider_product() -> None:
    step = Step(5, 2, 1, 64, torch.float16)
    step.slots[0] = -5
    ours, expected = (storage(64, 1, torch.float16) for _ in range(2))
    wanted = step.run(expected)
    wide = torch.full((5, 300), torch.nan, dtype=torch.float16)
    wide[:, :256] = step.qkv
    step.qkv, step.slots = wide[:, :256], step.slots.int()
    assert torch.equal(step.run(ours), wanted)
    for one, other in zip(parts(ours), parts(expected), strict=True):
        assert torch.equal(one, other)


def test_no_token_and_padding_alone_write_nothing() -> None:
    step = Step(3, 2, 1, 64, torch.float32)
    step.slots.fill_(-1)
    kv, untouched = (storage(64, 1, torch.int8) for _ in range(2))
    assert step.run(kv).isfinite().all()
    assert step.run(kv, slice(0, 0)).shape == (0, 2, 64)
    for one, other in zip(parts(kv), parts(untouched), strict=True):
        assert torch.equal(one, other)


def test_the_engine_gets_it_where_the_kernels_serve_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = Step(3, 2, 1, 64, torch.float32, normalized=True)
    ours, expected = (storage(64, 1, torch.float8_e5m2) for _ in range(2))
    wanted = step.run(expected)
    monkeypatch.setattr(public, "rope_kv_write_reference", None)
    with serving("interpreter"):
        found = public.rope_kv_write(step.qkv, step.cos_sin, step.norms, ours, step.slots)
    assert torch.equal(found, wanted)
    for one, other in zip(parts(ours), parts(expected), strict=True):
        assert torch.equal(one, other)
