"""Kernels whose result for a row has the same bits whatever other rows are computed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels import batch_invariant_tiles
from kernels.attention_metadata import AttentionMetadata
from kernels.attention_plan import AttentionPlan, plan_attention
from kernels.batch_invariant_linear import (
    PanelMatrix,
    batch_invariant_linear,
    batch_invariant_linear_reference,
)
from kernels.batch_invariant_rope import batch_invariant_cos_sin
from kernels.gelu_and_mul import batch_invariant_gelu_and_mul
from kernels.kv_layout import LayerKV
from kernels.kv_write import kv_write
from kernels.paged_attention import paged_attention
from kernels.rms_norm import add_rms_norm, rms_norm
from kernels.rope import rope_cos_sin
from kernels.silu_and_mul import silu_and_mul
from kernels.tiled_attention import TilePlan
from tests.support.cpu_kernels import using, variants

SHAPES = [(1, 1), (7, 3), (48, 32), (96, 33), (259, 1030), (64, 2100)]
CPU = torch.device("cpu")


@pytest.fixture(params=variants(), scope="module", autouse=True)
def _library(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.quick
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [0, 1, 2, 12, 13, 97, 130])
@pytest.mark.parametrize("biased", [False, True])
def test_products(shape: tuple[int, int], rows: int, biased: bool) -> None:
    matrix = PanelMatrix.of(numbers(*shape, seed=1))
    x, bias = numbers(rows, shape[1]), numbers(shape[0], seed=2) if biased else None
    expected = batch_invariant_linear_reference(x, matrix, bias)
    torch.testing.assert_close(
        batch_invariant_linear(x, matrix, bias).double(),
        expected,
        rtol=1e-5,
        atol=1e-5 * shape[1] ** 0.5,
    )


@pytest.mark.quick
@pytest.mark.parametrize("shape", SHAPES)
def test_a_matrix_can_be_read_back(shape: tuple[int, int]) -> None:
    plain = numbers(*shape)
    assert torch.equal(PanelMatrix.of(plain).dense(), plain)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SHAPES),
    st.lists(st.integers(0, 199), min_size=1, max_size=150),
    st.booleans(),
)
def test_a_product_is_the_same_in_any_place_among_any_rows(
    shape: tuple[int, int], rows: list[int], biased: bool
) -> None:
    matrix, x = PanelMatrix.of(numbers(*shape, seed=1)), numbers(200, shape[1])
    bias = numbers(shape[0], seed=2) if biased else None
    whole = batch_invariant_linear(x, matrix, bias)
    assert torch.equal(batch_invariant_linear(x[rows], matrix, bias), whole[rows])


@pytest.mark.quick
def test_rows_that_are_not_finite_harm_no_other() -> None:
    matrix, x = PanelMatrix.of(numbers(70, 40, seed=1)), numbers(30, 40)
    expected = batch_invariant_linear(x, matrix)
    x[[3, 17]] = torch.tensor([[torch.nan], [torch.inf]])
    found = batch_invariant_linear(x, matrix)
    others = [i for i in range(30) if i not in (3, 17)]
    assert torch.equal(found[others], expected[others])
    assert found[3].isnan().all()


@pytest.mark.quick
def test_neither_threads_nor_vectors_change_a_product() -> None:
    matrix, x = PanelMatrix.of(numbers(259, 1030, seed=1)), numbers(100, 1030)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(batch_invariant_linear(x, matrix))
    finally:
        torch.set_num_threads(before)
    for variant in variants():
        with using(variant):
            found.append(batch_invariant_linear(x, matrix))
    assert all(torch.equal(other, found[0]) for other in found)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 8191), min_size=1, max_size=200), st.sampled_from([1, 7, 16, 33]))
def test_angles_depend_on_the_position_alone(positions: list[int], half: int) -> None:
    inv_freq, scale = 1e4 ** -(torch.arange(half) / half), 1.1
    cos, sin = batch_invariant_cos_sin(torch.tensor(positions), inv_freq, scale)
    expected = rope_cos_sin(torch.tensor(positions), inv_freq, torch.float32, scale)
    torch.testing.assert_close((cos, sin), expected, rtol=1e-6, atol=1e-6)
    for i in {0, len(positions) // 2, len(positions) - 1}:
        alone = batch_invariant_cos_sin(torch.tensor(positions[i : i + 1]), inv_freq, scale)
        assert torch.equal(alone[0][0], cos[i])
        assert torch.equal(alone[1][0], sin[i])


@settings(deadline=None, max_examples=40)
@example([], 64)  # the last MLP of a step that wants nothing of its tokens but keys and values
@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=80), st.sampled_from([2, 34, 64, 576, 1538])
)
def test_norms_and_activations_are_the_same_among_any_rows(rows: list[int], width: int) -> None:
    x, weight = numbers(100, width), numbers(width, seed=1)
    assert torch.equal(rms_norm(x[rows], weight, 1e-5), rms_norm(x, weight, 1e-5)[rows])
    assert torch.equal(silu_and_mul(x[rows]), silu_and_mul(x)[rows])
    for by_tanh in (False, True):
        activated = batch_invariant_gelu_and_mul(x, by_tanh)
        assert torch.equal(batch_invariant_gelu_and_mul(x[rows], by_tanh), activated[rows])
    some, residual = x[rows].flip(1), x.clone()
    sums = residual[rows]
    normed = add_rms_norm(x.flip(1), residual, weight, 1e-5)
    assert torch.equal(add_rms_norm(some, sums, weight, 1e-5), normed[rows])
    assert torch.equal(sums, residual[rows])


class Context:
    """Sequences of random queries, keys and values, of which any part may be a step.

    They share the blocks of `shared` tokens at their beginning; slots that nobody wrote are NaN.
    """

    def __init__(
        self, lengths: list[int], shared: int, heads: tuple[int, int], block_size: int,
        head_dim: int, dtype: torch.dtype, seed: int,
    ) -> None:  # fmt: skip
        kv_heads, group = heads
        prefix = -(-shared // block_size)
        own = [-(-length // block_size) for length in lengths]
        free = list(range(prefix + sum(own)))
        random.Random(seed).shuffle(free)
        self.kv = LayerKV.allocate(
            len(free), block_size, kv_heads, head_dim, dtype=dtype, by_head=True
        )
        self.kv.keys.fill_(torch.nan)
        self.kv.values.fill_(torch.nan)
        common = [free.pop() for _ in range(prefix)]
        self.tables: list[list[int]] = []
        for i, n in enumerate(own):
            # Half of what all share; the rest of it is shared by the even and by the odd ones.
            branch = common if i < 2 else self.tables[i - 2][:prefix]
            half = len(common) // 2 if i == 1 else prefix
            self.tables.append([*branch[:half], *(free.pop() for _ in range(n))][:n])
        self.queries = []
        for i, (length, table) in enumerate(zip(lengths, self.tables, strict=True)):
            self.queries.append(numbers(length, kv_heads * group, head_dim, seed=seed + i))
            keys, values = numbers(2, length, kv_heads, head_dim, seed=seed + 100 + i)
            slots = [table[t // block_size] * block_size + t % block_size for t in range(length)]
            kv_write(keys, values, self.kv, torch.tensor(slots))

    def plan(
        self, chunks: list[tuple[int, int, int]], heads: int, window: int | None
    ) -> AttentionPlan:
        metadata = AttentionMetadata.build(
            [end - start for _, start, end in chunks],
            [end for _, _, end in chunks],
            [self.tables[i] for i, _, _ in chunks],
            self.kv.block_size,
            CPU,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch_invariant_tiles, "_MIN_SHARED_TOKENS", 1)
            return plan_attention(metadata, self.kv, heads, (window,), batch_invariant=True)

    def attend(self, chunks: list[tuple[int, int, int]], window: int | None) -> torch.Tensor:
        """A step of (sequence, first token, end) parts."""
        queries = torch.cat([self.queries[i][start:end] for i, start, end in chunks])
        plan = self.plan(chunks, queries.shape[1], window)
        return paged_attention(queries, self.kv, plan, 0.3, window)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Lengths of sequences, and the part of each that a step computes."""
    lengths = draw(st.lists(st.integers(1, 300), min_size=1, max_size=5))
    chunks = []
    for i, length in enumerate(lengths):
        end = draw(st.integers(1, length))
        start = draw(st.one_of(st.just(end - 1), st.integers(0, end - 1)))
        chunks.append((i, start, end))
    return lengths, draw(st.permutations(chunks))


@settings(deadline=None, max_examples=150)
@given(
    steps(),
    st.integers(0, 250),
    st.sampled_from([(1, 1), (4, 1), (1, 5), (3, 3), (1, 14), (1, 60)]),
    st.sampled_from([8, 16, 32]),
    st.sampled_from([4, 20, 64]),
    st.sampled_from([torch.float32, torch.float16]),
    st.none() | st.integers(1, 200),
    st.integers(0, 1000),
    st.data(),
)
def test_a_query_attends_the_same_in_any_step(
    step: tuple[list[int], list[tuple[int, int, int]]],
    shared: int,
    heads: tuple[int, int],
    block_size: int,
    head_dim: int,
    dtype: torch.dtype,
    window: int | None,
    seed: int,
    data: st.DataObject,
) -> None:
    """As part of any chunk, among any others, sharing blocks or not, and as a decode alone."""
    lengths, chunks = step
    context = Context(lengths, shared, heads, block_size, head_dim, dtype, seed)
    together = context.attend(chunks, window)
    row = 0
    for i, start, end in chunks:
        picked = data.draw(st.lists(st.integers(start, end - 1), max_size=4))
        for token in {start, end - 1, *picked}:
            alone = context.attend([(i, token, token + 1)], window)
            assert torch.equal(together[row + token - start], alone[0])
        row += end - start


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_prefixes_within_prefixes_are_attended_to_together(dtype: torch.dtype) -> None:
    lengths = [300, 290, 280, 270, 300]
    context = Context(lengths, 256, (2, 3), 16, 20, dtype, seed=0)
    decodes = [(i, length - 1, length) for i, length in enumerate(lengths)]
    plan = context.plan(decodes, 6, None).by_window[None]
    assert isinstance(plan, TilePlan)
    shared = {tuple(tile.queries): tile for tile in plan.tiles if len(tile.queries) > 1}
    assert {q: (t.phase, t.start, t.length) for q, t in shared.items()} == {
        (0, 1, 2, 3, 4): (0, 0, 128), (0, 2, 4): (1, 128, 128), (1, 3): (1, 128, 128),
    }  # fmt: skip
    together = context.attend(decodes, None)
    for row, decode in enumerate(decodes):
        assert torch.equal(context.attend([decode], None)[0], together[row])
