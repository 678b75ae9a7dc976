"""The sampler: the filters of transformers, statistics, ties, and independence of rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from kernels.greedy import NO_TOKEN
from kernels.sampling import RowSampling, SamplingMetadata, filtered_scores, sample

CPU = torch.device("cpu")


def rule(
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    position: int = 0,
    sample_index: int = 0,
    min_p: float = 0.0,
    processed: bool = False,
) -> RowSampling:
    return RowSampling(temperature, top_k, top_p, seed, position, sample_index, min_p, processed)


def draw(logits: torch.Tensor, rules: list[RowSampling]) -> list[int]:
    return sample(logits, SamplingMetadata.build(rules, logits.shape[-1], CPU)).tolist()


def test_greedy_takes_the_lowest_id_of_equal_logits() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0], [-5.0, -4.0, -3.0, -3.0]])
    assert draw(logits, [rule(temperature=0)] * 3) == [1, 0, 2]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_row_that_is_not_finite_gets_no_token_and_harms_no_other(
    bad: float, temperature: float
) -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    rules = [rule(temperature, 5, 0.9, seed=i) for i in range(4)]
    expected = draw(logits, rules)
    logits[2, 17] = bad
    assert draw(logits, rules) == [*expected[:2], NO_TOKEN, expected[3]]


@pytest.mark.parametrize("vocab_size", [40, 5000])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
def test_filters_keep_what_those_of_transformers_keep(vocab_size: int, spread: float) -> None:
    choices = [
        (t, k, p, m)
        for t in (0.3, 1.0, 2.5)
        for k in (0, 1, 7, 2000)
        for p in (1e-6, 0.5, 0.9, 0.999, 1.0)
        for m in (0.0, 0.02, 0.4, 1.0)
    ]
    logits = torch.randn(len(choices), vocab_size, generator=torch.Generator().manual_seed(1))
    logits *= spread
    metadata = SamplingMetadata.build([rule(*c[:3], min_p=c[3]) for c in choices], vocab_size, CPU)
    ours = filtered_scores(logits, metadata).softmax(-1)
    alone = [
        filtered_scores(
            logits[i : i + 1],
            SamplingMetadata.build([rule(*c[:3], min_p=c[3])], vocab_size, CPU),
        )
        for i, c in enumerate(choices)
    ]
    torch.testing.assert_close(torch.cat(alone).softmax(-1), ours)
    for row, (temperature, top_k, top_p, min_p) in enumerate(choices):
        scores = TemperatureLogitsWarper(temperature)(None, logits[row : row + 1])
        if top_k:
            scores = TopKLogitsWarper(top_k)(None, scores)
        if top_p < 1:
            scores = TopPLogitsWarper(top_p)(None, scores)
        if min_p:
            scores = MinPLogitsWarper(min_p)(None, scores)
        expected = scores.softmax(-1)[0]
        differing = (ours[row] > 0) != (expected > 0)
        # Sums in float32 may decide otherwise about the one token at the edge of top-p.
        assert differing.sum() <= (top_p < 1), (temperature, top_k, top_p)
        torch.testing.assert_close(ours[row], expected, rtol=2e-3, atol=2e-5)


def test_tokens_that_tie_with_the_last_one_kept_are_kept() -> None:
    logits = torch.tensor([[1.0, 4.0, 1.0, 4.0, 4.0]]).repeat(2, 1)
    rules = [rule(top_k=2), rule(top_p=0.4)]
    kept = filtered_scores(logits, SamplingMetadata.build(rules, 5, CPU)).isfinite()
    assert kept.tolist() == [[False, True, False, True, True]] * 2


@pytest.mark.parametrize(("uniform", "expected"), [(0.0, 1), (1 - 2.0**-53, 3)])
def test_the_ends_of_the_unit_interval_give_no_filtered_token(
    uniform: float, expected: int
) -> None:
    logits = torch.tensor([[-9.0, 2.0, -9.0, 2.0, -9.0]])
    metadata = SamplingMetadata.build([rule(top_k=2)], 5, CPU)
    metadata = dataclasses.replace(
        metadata, uniforms=torch.tensor([[uniform]], dtype=torch.float64)
    )
    assert sample(logits, metadata).tolist() == [expected]


def chi_square(tokens: list[int], probabilities: torch.Tensor) -> float:
    observed = torch.bincount(torch.tensor(tokens), minlength=len(probabilities)).double()
    assert observed[probabilities == 0].sum() == 0
    expected = probabilities.double() * len(tokens)
    possible = probabilities > 0
    return ((observed - expected).square() / expected)[possible].sum().item()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.6, 0, 1.0, 0.0),
        (1.3, 6, 1.0, 0.0),
        (1.0, 9, 0.8, 0.0),
        (1.0, 0, 1.0, 0.2),
        (1.5, 9, 0.9, 0.1),
    ],
)
@pytest.mark.parametrize("varied", ["seed", "position", "sample_index"])
def test_draws_follow_the_softmax(
    temperature: float, top_k: int, top_p: float, min_p: float, varied: str
) -> None:
    logits = torch.tensor([[1.2, -0.3, 0.8, 2.0, -1.5, 0.1, 0.4, 1.1, -0.7, 0.6, 1.7, -0.2]])
    draws = 20_000
    rules = [rule(temperature, top_k, top_p, min_p=min_p, **{varied: i}) for i in range(draws)]
    tokens = draw(logits.expand(draws, -1), rules)
    metadata = SamplingMetadata.build(rules[:1], 12, CPU)
    probabilities = filtered_scores(logits, metadata).softmax(-1)[0]
    assert chi_square(tokens, probabilities) < 31.3  # 11 degrees of freedom, 0.1%


@st.composite
def rules(draw: st.DrawFn) -> RowSampling:
    return RowSampling(
        temperature=draw(st.sampled_from([0.0, 1e-320, 1e-6, 0.5, 1.0, 3.0, 1e30])),
        top_k=draw(st.sampled_from([0, 1, 3, 50, 1500, 10_000])),
        top_p=draw(st.sampled_from([1e-9, 0.3, 0.95, 1.0])),
        seed=draw(st.integers(0, 2**63 - 1)),
        position=draw(st.integers(0, 100_000)),
        sample_index=draw(st.integers(0, 3)),
        min_p=draw(st.sampled_from([0.0, 0.05, 1.0])),
        processed=draw(st.booleans()),
    )


@settings(deadline=None, max_examples=40)
@given(
    st.lists(rules(), min_size=1, max_size=6),
    st.integers(0, 2**31),
    st.sampled_from([1, 2, 30, 3000]),
    st.sampled_from([1e-3, 1.0, 100.0]),
)
def test_a_rows_token_does_not_depend_on_the_batch(
    batch: list[RowSampling], data_seed: int, vocab_size: int, spread: float
) -> None:
    generator = torch.Generator().manual_seed(data_seed)
    logits = torch.randn(len(batch), vocab_size, generator=generator) * spread
    together = draw(logits, batch)
    alone = [draw(logits[i : i + 1], [r])[0] for i, r in enumerate(batch)]
    assert together == alone
    assert all(0 <= token < vocab_size for token in together)


@pytest.mark.parametrize("temperature", [1e-320, 1e-30, 1e-5])
def test_a_temperature_near_zero_is_greedy(temperature: float) -> None:
    logits = torch.randn(20, 100, generator=torch.Generator().manual_seed(2)) * 50
    assert (
        draw(logits, [rule(temperature, seed=i) for i in range(20)]) == logits.argmax(-1).tolist()
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_sampled_in_float32(dtype: torch.dtype) -> None:
    logits = torch.randn(50, 200, generator=torch.Generator().manual_seed(3)).to(dtype)
    batch = [rule(0.8, 20, 0.9, seed=i) for i in range(50)]
    assert draw(logits, batch) == draw(logits.float(), batch)
