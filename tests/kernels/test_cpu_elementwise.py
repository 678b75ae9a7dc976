"""The C++ elementwise kernels, each library of them, against their torch references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import greedy
from kernels import rms_norm as rms_norm_module
from kernels import rope_kv_write as rope_module
from kernels import silu_and_mul as silu_module
from kernels.cpu.library import library
from kernels.greedy import NO_TOKEN, greedy_tokens, greedy_tokens_reference
from kernels.kv_layout import LayerKV
from kernels.rms_norm import (
    add_rms_norm,
    add_rms_norm_reference,
    rms_norm,
    rms_norm_reference,
)
from kernels.rope import rope_cos_sin
from kernels.rope_kv_write import HeadNormWeights, rope_kv_write, rope_kv_write_reference
from kernels.sampling import RowSampling, SamplingMetadata, sample
from kernels.silu_and_mul import silu_and_mul, silu_and_mul_reference
from tests.support.cpu_kernels import using, variants

pytestmark = pytest.mark.quick
WIDTHS = [1, 7, 8, 16, 17, 33, 576, 1537]
# Below and above the size from which several threads compute.
ROWS = [1, 70]


@pytest.fixture(params=variants(), scope="module", autouse=True)
def _library(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", ROWS)
def test_silu_and_mul(rows: int, width: int) -> None:
    gate_up = torch.randn(rows, 2 * width) * 5
    torch.testing.assert_close(silu_and_mul(gate_up), silu_and_mul_reference(gate_up))


def test_silu_of_numbers_far_from_0() -> None:
    gate = torch.tensor(
        [-torch.inf, -3e38, -1e30, -500.0, -90.0, -88.0, 88.0, 500.0, 1e30, torch.inf, torch.nan]
    )
    gate_up = torch.cat((gate, torch.ones(len(gate))))[None]
    torch.testing.assert_close(
        silu_and_mul(gate_up), silu_and_mul_reference(gate_up), equal_nan=True
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", ROWS)
def test_rms_norm(rows: int, width: int) -> None:
    x, weight = torch.randn(rows, width) * 7, torch.randn(width)
    before = x.clone()
    torch.testing.assert_close(rms_norm(x, weight, 1e-5), rms_norm_reference(x, weight, 1e-5))
    assert torch.equal(x, before)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", ROWS)
def test_add_rms_norm(rows: int, width: int) -> None:
    x, residual, weight = torch.randn(rows, width), torch.randn(rows, width), torch.randn(width)
    total = residual.clone()
    expected = add_rms_norm_reference(x, total, weight, 1e-5)
    torch.testing.assert_close(add_rms_norm(x, residual, weight, 1e-5), expected)
    assert torch.equal(residual, total)


def test_what_is_not_finite_stays_in_its_row() -> None:
    x, weight = torch.randn(3, 40), torch.ones(40)
    x[1, 39] = torch.nan
    assert rms_norm(x, weight, 1e-5).isnan().any(-1).tolist() == [False, True, False]
    normed = add_rms_norm(x, torch.zeros(3, 40), weight, 1e-5)
    assert normed.isnan().any(-1).tolist() == [False, True, False]


def test_strided_inputs() -> None:
    wide, weight = torch.randn(5, 200), torch.randn(60)
    x, residual = wide[:, 20:80], wide[:, 100:160]
    torch.testing.assert_close(rms_norm(x, weight, 1e-5), rms_norm_reference(x, weight, 1e-5))
    torch.testing.assert_close(silu_and_mul(x), silu_and_mul_reference(x))
    total = residual + x
    normed = add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(wide[:, 100:160], total)
    torch.testing.assert_close(normed, rms_norm_reference(total, weight, 1e-5))
    assert torch.equal(greedy_tokens(x), greedy_tokens_reference(x))


def blocks(dtype: torch.dtype, block_size: int, kv_heads: int, head_dim: int) -> LayerKV:
    kv = LayerKV.allocate(9, block_size, kv_heads, head_dim, dtype=dtype, by_head=True)
    kv.keys.fill_(-7)
    kv.values.fill_(-7)
    return kv


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("heads", [(1, 1), (9, 3)])
@pytest.mark.parametrize("head_dim", [2, 20, 64, 66])
@pytest.mark.parametrize("normalized", [False, True])
def test_rope_kv_write(
    dtype: torch.dtype, block_size: int, heads: tuple[int, int], head_dim: int, normalized: bool
) -> None:
    num_heads, kv_heads = heads
    tokens = 70
    qkv = torch.randn(tokens, (num_heads + 2 * kv_heads) * head_dim)
    cos_sin = rope_cos_sin(
        torch.randint(0, 900, (tokens,)), torch.rand(head_dim // 2), torch.float32
    )
    norms = HeadNormWeights(torch.randn(head_dim), torch.randn(head_dim), 1e-5)
    slots = torch.randperm(9 * block_size)[:tokens]
    ours, expected = (blocks(dtype, block_size, kv_heads, head_dim) for _ in range(2))
    arguments = cos_sin, norms if normalized else None
    queries = rope_kv_write(qkv, *arguments, ours, slots)
    torch.testing.assert_close(
        queries, rope_kv_write_reference(qkv, *arguments, expected, slots), rtol=1e-5, atol=2e-6
    )
    # Numbers that differ in the last bit of float32 may round to neighbouring binary16.
    close = {"rtol": 1e-5, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 1e-3, "atol": 1e-5}
    torch.testing.assert_close(ours.keys, expected.keys, **close)
    assert torch.equal(ours.values, expected.values)  # what is not in a slot is untouched


@pytest.mark.parametrize("count", [0, 1])
def test_rope_kv_write_of_few_tokens(count: int) -> None:
    kv = blocks(torch.float32, 16, 1, 8)
    cos_sin = rope_cos_sin(torch.arange(count), torch.rand(4), torch.float32)
    qkv = torch.randn(count, 5 * 8)
    queries = rope_kv_write(qkv, cos_sin, None, kv, torch.arange(count))
    torch.testing.assert_close(queries.flatten(1), qkv[:, :24])  # position 0 does not turn
    assert (kv.values != -7).sum() == 8 * count


def spied(called: set[str], name: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    def spy(*arguments: Any) -> Any:
        called.add(name)
        return reference(*arguments)

    return spy


def test_the_library_computes_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would compare the references with themselves."""
    called: set[str] = set()
    for module in (greedy, rms_norm_module, rope_module, silu_module):
        for name, reference in list(vars(module).items()):
            if name.endswith("_reference"):
                monkeypatch.setattr(module, name, spied(called, name, reference))
    x, weight = torch.randn(2, 24), torch.randn(24)
    silu_and_mul(x)
    rms_norm(x, weight, 1e-5)
    add_rms_norm(x, x.clone(), weight, 1e-5)
    greedy_tokens(x)
    for dtype in (torch.float32, torch.float16):
        cos_sin = rope_cos_sin(torch.arange(2), torch.rand(4), torch.float32)
        kv = blocks(dtype, 8, 1, 8)
        rope_kv_write(x, cos_sin, None, kv, torch.arange(2))
    assert len(called) == (0 if library() is not None else 5)


@pytest.mark.parametrize("vocab_size", [1, 2, 15, 16, 63, 64, 65, 200, 49_152, 50_257])
@pytest.mark.parametrize("rows", [1, 5])
def test_greedy_tokens(rows: int, vocab_size: int) -> None:
    logits = torch.randn(rows, vocab_size)
    assert torch.equal(greedy_tokens(logits), greedy_tokens_reference(logits))


@given(
    st.integers(1, 300).flatmap(
        lambda size: st.tuples(
            st.just(size), st.lists(st.integers(0, size - 1), min_size=1, max_size=6)
        )
    ),
    st.sampled_from([-3.0, 0.0, 5.0]),
)
def test_of_equal_logits_the_lowest_id_wins(places: tuple[int, list[int]], top: float) -> None:
    size, best = places
    logits = torch.full((1, size), top - 1)
    logits[0, best] = top
    assert greedy_tokens(logits).tolist() == [min(best)]


@given(
    st.integers(1, 300).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))),
    st.sampled_from([torch.nan, torch.inf, -torch.inf]),
)
def test_a_row_that_is_not_finite_has_no_token(place: tuple[int, int], bad: float) -> None:
    size, where = place
    logits = torch.zeros(3, size)
    logits[1, where] = bad
    assert greedy_tokens(logits).tolist() == [0, NO_TOKEN, 0]


def test_largest_and_smallest_floats_are_finite() -> None:
    most = torch.finfo(torch.float32).max
    logits = torch.full((2, 100), -most)
    logits[1, 70] = most
    assert greedy_tokens(logits).tolist() == [0, 70]


def test_sampled_rows_among_greedy_ones() -> None:
    logits = torch.randn(3, 50)
    logits[1, 20] = torch.nan
    rules = [RowSampling(t, 1, 1.0, 0, 0, 0) for t in (0.0, 1.0, 1.0)]
    tokens = sample(logits, SamplingMetadata.build(rules, 50, torch.device("cpu")))
    best = logits.argmax(-1).tolist()
    assert tokens.tolist() == [best[0], NO_TOKEN, best[2]]
