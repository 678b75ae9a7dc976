"""Paged attention of the GPU against the one-query-at-a-time reference, in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton.runtime.interpreter as interpreter
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention_plan import plan_attention
from kernels.gpu import attention_items, attention_limits, attention_plan, library
from kernels.gpu.attention import paged_attention_kernel
from kernels.gpu.attention_limits import DecodeLimits, TileKind
from kernels.gpu.library import VARIANT_VARIABLE
from kernels.kv_quantization import QUANTIZED
from kernels.paged_attention import paged_attention
from tests.kernels.gpu.attention_case import AttentionCase
from tests.support.triton_interpreter import _is_narrow, _widened

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def _short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are cut, and prefixes shared, where the interpreter has little to compute."""
    monkeypatch.setattr(attention_plan, "MIN_RUN", 128)
    monkeypatch.setattr(attention_plan, "MIN_WIDE_RUN", 128)
    for module in (attention_plan, attention_limits):
        monkeypatch.setattr(module, "INVARIANT_RUN", 128)
    monkeypatch.setattr(attention_items, "MIN_SHARED_TOKENS", 16)
    monkeypatch.setattr(attention_items, "MIN_SAVED_TOKENS", 16)


lengths = st.lists(
    st.integers(1, 260).flatmap(
        lambda context: st.tuples(st.just(1) | st.integers(1, min(context, 30)), st.just(context))
    ),
    min_size=1,
    max_size=4,
)
# Everybody shares two blocks; three have three more in common, and two another.
NESTED = [(1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5), (1, 2), (1, 2)]
prefixes = st.sampled_from([[], NESTED, [range(10, 30)] * 5])
heads = st.sampled_from([(1, 1), (2, 3), (1, 4), (1, 7), (3, 2), (1, 20)])


@settings(deadline=None, max_examples=60)
@given(
    lengths, prefixes, st.sampled_from([8, 16, 32]), heads, st.sampled_from([16, 48, 64]),
    st.sampled_from(FLOATS), st.none() | st.sampled_from([*FLOATS, *QUANTIZED]),
    st.none() | st.integers(1, 320), st.none() | st.sampled_from([0.5, 20.0]),
    st.sampled_from([1, 132]), st.booleans(),
)  # fmt: skip
def test_any_step_is_as_the_reference_computes_it(
    lens, prefixes, block_size, heads, head_dim, dtype, kv_dtype, window, softcap, multiprocessors,
    batch_invariant,
) -> None:  # fmt: skip
    case = AttentionCase.build(
        lens, prefixes=prefixes, block_size=block_size, kv_heads=heads[0], group=heads[1],
        head_dim=head_dim, dtype=dtype, kv_dtype=kv_dtype,
    )  # fmt: skip
    plan = case.plan(window, batch_invariant=batch_invariant, multiprocessors=multiprocessors)
    case.check(case.run(plan, softcap), window, softcap)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.just(1), st.integers(0, 300)), min_size=1, max_size=4),
    prefixes, st.none() | st.integers(1, 320), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_graph_of_any_step_within_the_limits(
    lens, prefixes, window, batch_invariant, latest
) -> None:
    """Decodes and padding, whose kernels are launched for whatever the limits allow."""
    case = AttentionCase.build(lens, prefixes=prefixes, group=4)
    plan = case.plan(
        window, batch_invariant=batch_invariant, limits=DecodeLimits(4, 300), multiprocessors=1
    )
    case.check(case.run(plan, kind=TileKind.SHARED if latest else None), window)


def test_one_launch_computes_chunks_after_cached_tokens_and_decodes_of_every_kind(monkeypatch):
    launches = []
    run = type(paged_attention_kernel).__getitem__
    monkeypatch.setattr(
        type(paged_attention_kernel), "__getitem__",
        lambda self, grid: launches.append((self.fn.__name__, grid)) or run(self, grid),
    )  # fmt: skip
    case = AttentionCase.build(
        [(40, 200), (1, 290), (1, 100), (1, 90), (17, 17), (1, 16)],
        prefixes=[(), (), range(3), range(3)], group=4, kv_heads=2,
    )  # fmt: skip
    plan = case.plan()
    assert plan.kind is TileKind.SHARED
    assert plan.launches[0].small_m == 16 < plan.launches[0].block_m

    case.check(case.run(plan))

    tiles, merges = plan.arrays[0].tolist()
    assert launches == [
        ("paged_attention_kernel", (2 * tiles,)), ("merge_partials_kernel", (merges, 8))
    ]  # fmt: skip


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, *QUANTIZED])
def test_every_size_of_heads_and_format(head_dim, kv_dtype):
    case = AttentionCase.build(
        [(1, 130), (9, 70)], head_dim=head_dim, dtype=torch.bfloat16, kv_dtype=kv_dtype
    )
    case.check(case.run(case.plan()))


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 63, 64, 65, 128, 129, 256])
def test_runs_that_fill_blocks_and_spans_and_those_that_do_not(tokens):
    case = AttentionCase.build([(1, tokens), (min(tokens, 30), tokens)])
    case.check(case.run(case.plan()))


@pytest.mark.parametrize("window", [1, 16, 64, 65, 100, 127, 128, 129])
def test_windows_that_begin_anywhere(window):
    case = AttentionCase.build([(1, 260), (33, 200)])
    case.check(case.run(case.plan(window)), window)


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_blocks_before_the_window_may_belong_to_others(batch_invariant):
    case, window = AttentionCase.build([(1, 290), (20, 200)]), 70
    for i in range(2):
        oldest = case.metadata.first_attended(i, window) // case.kv.block_size
        case.kv.keys[list(case.metadata.block_tables[i][:oldest])] = torch.nan
        case.kv.values[list(case.metadata.block_tables[i][:oldest])] = torch.nan
    case.check(case.run(case.plan(window, batch_invariant=batch_invariant)), window)


def test_numbers_that_make_no_sum_are_not_hidden():
    """A token that is NaN spoils the queries that attend to it, and those alone."""
    case = AttentionCase.build([(1, 100), (1, 70), (1, 90)])
    table = case.metadata.block_tables[1]
    case.kv.keys[table[2], 3] = torch.nan
    found = case.run(case.plan())
    assert found[1].isnan().all()
    assert found[[0, 2]].isfinite().all()


@pytest.fixture
def _products_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in an order that does not depend on the row, as tensor cores add; numpy's do not."""

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, most: Any) -> Any:
        a, b = (_widened(x).data if _is_narrow(x) else x.data for x in (a, b))
        total = d.data.copy()
        for k in range(a.shape[1]):
            total += a[:, k : k + 1] * b[k : k + 1]
        return interpreter.TensorHandle(total, d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


@pytest.mark.usefixtures("_products_row_by_row")
@pytest.mark.parametrize(
    ("window", "dtype"),
    [(None, torch.float32), (200, torch.float32), (None, torch.bfloat16)],
)
def test_a_row_alone_has_the_bits_that_it_has_in_a_full_batch(window, dtype):
    """Whatever shares its prefix, and however its prompt is cut into chunks."""
    case = AttentionCase.build(
        [(1, 290), (1, 140), (1, 281), (50, 300), (33, 161), (1, 128), (1, 129)],
        prefixes=[range(8), range(8), range(8)], dtype=dtype,
    )  # fmt: skip
    plan = case.plan(window, batch_invariant=True)
    assert plan.kind is (TileKind.SHARED if window is None else TileKind.SPLIT)
    together = case.run(plan)
    case.check(together, window)

    for i, queries in ((0, 1), (1, 1), (3, 1), (3, 30), (4, 20), (6, 1)):
        alone = case.alone(i, queries)
        end = case.metadata.query_starts[i + 1]
        found = alone.run(alone.plan(window, batch_invariant=True))
        assert torch.equal(found, together[end - queries : end]), (i, queries)


def test_more_partial_results_than_are_merged_at_once():
    case = AttentionCase.build([(1, 2300), (1, 200), (1, 1)])
    late = case.metadata.block_tables[0][140]
    case.kv.keys[late] *= 6  # so that what comes last weighs most
    plan = case.plan()
    assert np.diff(plan.arrays[6]).tolist() == [18, 2]
    case.check(case.run(plan))


def test_the_engine_plans_all_windows_at_once_and_attends_by_the_kernel(monkeypatch):
    monkeypatch.setenv(VARIANT_VARIABLE, "interpreter")
    library.forget()
    try:
        case = AttentionCase.build([(1, 150), (20, 150)])
        windows = (None, 40, 1000)
        plan = plan_attention(case.metadata, case.kv, case.queries.shape[1], windows)
        assert plan.by_window[1000] is plan.by_window[None]
        buffers = {x.arguments[0].untyped_storage().data_ptr() for x in plan.by_window.values()}
        assert len(buffers) == 1
        for window in windows:
            found = paged_attention(case.queries, case.kv, plan, case.scale, window, 5.0)
            case.check(found, window, 5.0)
    finally:
        monkeypatch.undo()
        library.forget()


def test_graphs_read_the_numbers_that_lie_in_their_memory_when_they_are_replayed():
    """The same tensors and the same launch, other numbers."""
    into, limits = torch.full((4096,), 0x7F, dtype=torch.uint8), DecodeLimits(3, 300)
    for lens in ([(1, 300), (1, 200), (1, 9)], [(1, 5)], [(1, 0), (1, 299), (1, 0)]):
        case = AttentionCase.build(lens)
        plan = case.plan(limits=limits, multiprocessors=1)
        case.check(case.run(plan, kind=TileKind.SPLIT, into=into))
