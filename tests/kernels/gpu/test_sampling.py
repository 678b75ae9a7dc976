"""Sampling on the GPU against its reference, in the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernels.gpu import library
from kernels.gpu import sampling as module
from kernels.gpu.row_weights import first_above
from kernels.gpu.sampling import sample_rows, uniform_bits
from kernels.greedy import NO_TOKEN, greedy_tokens_reference
from kernels.packed_sampling import PackedSampling
from kernels.philox import philox_uniform
from kernels.sampling import (
    NOTHING_LEFT,
    RowSampling,
    SamplingMetadata,
    filtered_scores,
    sample,
    sampling_rules,
)

# A scaled score may be minus infinity, of which numpy warns.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

CPU = torch.device("cpu")
# Between a cumulative probability and what it is compared with; see kernels.gpu.sampling.
TOLERANCE = 1e-5


def rule(
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    position: int = 0,
    sample_index: int = 0,
) -> RowSampling:
    return RowSampling(temperature, top_k, top_p, seed, position, sample_index, min_p, True)


def draw(
    logits: torch.Tensor, rules: list[RowSampling], scores: torch.Tensor | None = None
) -> list[int]:
    """What the kernel chooses for all rows, all of which count as processed."""
    packed = PackedSampling.build(rules, range(len(rules)), logits.shape[-1], CPU)
    tokens = greedy_tokens_reference(logits)
    sample_rows(tokens, logits if scores is None else scores, scores is not None, *packed.rules())
    return tokens.tolist()


def expected(
    logits: torch.Tensor, rules: list[RowSampling], scores: torch.Tensor | None = None
) -> list[int]:
    metadata = SamplingMetadata.build(rules, logits.shape[-1], CPU)
    assert metadata is not None
    replace = [lambda x: x.copy_(scores[list(metadata.order)])] if scores is not None else []
    return sample(logits, metadata, replace).tolist()


def is_near(scores: torch.Tensor, rule: RowSampling) -> bool:
    """Whether top-p or the draw of a row is decided by less than the tolerance."""
    metadata = SamplingMetadata.build([rule], len(scores), CPU)
    assert metadata is not None
    kept = filtered_scores(scores[None], metadata)[0].double().softmax(-1)
    distances = [(kept.cumsum(-1) - metadata.uniforms[0]).abs().min()]
    if rule.top_p < 1:
        alone = SamplingMetadata.build([rule._replace(top_p=1.0, min_p=0)], len(scores), CPU)
        assert alone is not None
        of_k = filtered_scores(scores[None], alone)
        cumulative = of_k[0].double().softmax(-1).sort(descending=True).values.cumsum(-1)
        distances.append((cumulative - rule.top_p).abs().min())
    return min(distances).item() < TOLERANCE


def check(
    logits: torch.Tensor, rules: list[RowSampling], scores: torch.Tensor | None = None
) -> None:
    ours, theirs = draw(logits, rules, scores), expected(logits, rules, scores)
    for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one != other:
            row = (logits if scores is None else scores)[i].float()
            assert is_near(row, rules[i]), (rules[i], one, other)


MIXED = [
    rule(t, k, p, m, seed=i, position=3 * i, sample_index=i % 3)
    for i, (t, k, p, m) in enumerate(
        [
            (0.7, 0, 1.0, 0.0), (1.0, 1, 1.0, 0.0), (1.3, 5, 1.0, 0.0), (1.0, 0, 0.9, 0.0),
            (2.5, 0, 0.3, 0.0), (1.0, 0, 1.0, 0.1), (0.8, 40, 0.95, 0.0), (1.0, 900, 0.999, 0.02),
            (0.0, 0, 1.0, 0.0), (1e-30, 0, 0.5, 0.0), (1e30, 3, 0.5, 0.0), (1.0, 0, 1e-9, 0.0),
            (1.0, 4000, 1.0, 0.0), (1.7, 0, 0.99, 0.001),
        ]
    )
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [1, 7, 1000, 4097])
@pytest.mark.parametrize("spread", [0.01, 3.0])
def test_rows_of_all_rules_get_the_tokens_of_the_reference(
    dtype: torch.dtype, vocab_size: int, spread: float
) -> None:
    seed = vocab_size + dtype.itemsize
    torch.manual_seed(seed)
    rules = [r._replace(seed=r.seed + 100 * seed) for r in MIXED]
    check((torch.randn(len(MIXED), vocab_size) * spread).to(dtype), rules)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks a row, and few candidates, so that they often do not suffice."""
    monkeypatch.setattr(module, "BLOCK_SIZE", 256)
    monkeypatch.setattr(module, "CANDIDATES", 64)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])
def test_so_do_rows_of_many_blocks_whose_candidates_do_not_suffice(
    dtype: torch.dtype, spread: float
) -> None:
    torch.manual_seed(7)
    check((torch.randn(len(MIXED), 1300) * spread).to(dtype), MIXED)


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor | None, list[RowSampling]]:
    """Logits, processed scores or None, and rules."""
    count, vocab_size = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 30, 300, 700]))
    rules = [
        RowSampling(
            temperature=draw(st.sampled_from([0.0, 1e-320, 1e-6, 0.5, 1.0, 3.0, 1e30])),
            top_k=draw(st.sampled_from([0, 1, 3, 50, 250, 10_000])),
            top_p=draw(st.sampled_from([1e-9, 0.3, 0.95, 1.0])),
            seed=draw(st.integers(0, 2**63 - 1)),
            position=draw(st.integers(0, 100_000)),
            sample_index=draw(st.integers(0, 3)),
            min_p=draw(st.sampled_from([0.0, 0.05, 1.0])),
            processed=True,
        )
        for _ in range(count)
    ]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = torch.randn(count, vocab_size, generator=generator)
    logits *= draw(st.sampled_from([1e-3, 1.0, 100.0]))
    if draw(st.booleans()):  # many ties
        logits = (logits * 2).round()
    scores = None
    if draw(st.booleans()):
        scores = logits.clone()
        banned = torch.rand(logits.shape, generator=generator) < draw(st.sampled_from([0.3, 0.99]))
        scores[banned] = draw(st.sampled_from([-torch.inf, torch.finfo(torch.float32).min]))
        for i in range(count):
            odd = draw(st.sampled_from([None, None, None, torch.nan, torch.inf, -torch.inf]))
            if odd == -torch.inf:
                scores[i] = odd
            elif odd is not None:
                scores[i, draw(st.integers(0, vocab_size - 1))] = odd
    if draw(st.booleans()):
        logits[draw(st.integers(0, count - 1)), 0] = draw(st.sampled_from([torch.nan, torch.inf]))
    return logits, scores, rules


@pytest.mark.parametrize("candidates", [32, 4096])
def test_so_do_any_rows_with_ties_and_infinities(
    candidates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_SIZE", 128)
    monkeypatch.setattr(module, "CANDIDATES", candidates)

    # To shrink an example takes minutes here.
    @settings(deadline=None, max_examples=25, phases=[Phase.generate])
    @given(batches())
    def run(batch: tuple[torch.Tensor, torch.Tensor | None, list[RowSampling]]) -> None:
        logits, scores, rules = batch
        check(logits, rules, scores)
        together = draw(logits, rules, scores)
        alone = [
            draw(logits[i : i + 1], [r], None if scores is None else scores[i : i + 1])[0]
            for i, r in enumerate(rules)
        ]
        assert together == alone

    run()


@pytest.mark.parametrize(("block", "candidates"), [(64, 64), (32, 2)])
@pytest.mark.parametrize(
    "filters", [{"top_k": 3}, {"top_p": 0.5}, {"top_k": 6, "top_p": 0.7}, {"min_p": 0.6}]
)
def test_all_tokens_that_the_filters_keep_are_drawn_and_no_other(
    block: int, candidates: int, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among candidates, and in rows whose candidates do not suffice."""
    monkeypatch.setattr(module, "BLOCK_SIZE", block)
    monkeypatch.setattr(module, "CANDIDATES", candidates)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(9))
    logits = torch.linspace(0, 8, 40)[order].bfloat16()
    one = SamplingMetadata.build([rule(**filters)], 40, CPU)
    assert one is not None
    kept = filtered_scores(logits[None], one)[0].isfinite().nonzero().flatten().tolist()

    tokens = draw(logits.expand(40, -1), [rule(seed=i, **filters) for i in range(40)])

    assert sorted(set(tokens)) == kept


def test_many_unlikely_tokens_are_candidates_too() -> None:
    """Each has a four-hundredth of the peak's probability, and all together two thirds of all."""
    logits = -6 - torch.arange(1000).expand(10, -1) / 5000
    logits = logits.index_fill(1, torch.tensor([500]), 0.0)
    rules = [rule(top_k=900, seed=i) for i in range(10)]

    check(logits, rules)

    assert len(set(draw(logits, rules))) > 5


def test_tokens_that_tie_with_the_last_one_kept_are_kept() -> None:
    logits = torch.tensor([[1.0, 4.0, 1.0, 4.0, 4.0]]).repeat(60, 1)
    rules = [rule(top_k=2, seed=i) if i % 2 else rule(top_p=0.4, seed=i) for i in range(60)]

    assert set(draw(logits, rules)) == {1, 3, 4}


def test_a_row_that_is_not_finite_gets_no_token_and_padding_changes_nothing() -> None:
    logits = torch.randn(5, 50)
    logits[1, 3] = torch.nan
    scores = logits.clone()
    scores[2] = -torch.inf
    scores[3, 4] = torch.inf
    rules = [rule(0.7, 5, 0.9, seed=i) for i in range(5)]
    packed = PackedSampling.build(rules, range(5), 50, CPU)
    packed.rows[4] = -1
    tokens = greedy_tokens_reference(logits)
    tokens[4] = 77

    sample_rows(tokens, scores, True, *packed.rules())

    assert 0 <= tokens[0] < 50
    assert tokens.tolist()[1:] == [NO_TOKEN, NOTHING_LEFT, NO_TOKEN, 77]


def test_only_the_rows_of_the_rules_are_replaced() -> None:
    torch.manual_seed(3)
    logits = torch.randn(6, 90)
    rules = [rule(0.9, 10, 0.9, seed=i) for i in range(6)]
    packed = PackedSampling.build(rules, [4, 1], 90, CPU)
    tokens = greedy_tokens_reference(logits)

    sample_rows(tokens, logits, False, *packed.rules())

    together, greedy = draw(logits, rules), logits.argmax(-1).tolist()
    assert tokens.tolist() == [together[i] if i in (1, 4) else greedy[i] for i in range(6)]


@triton.jit
def _uniform_bits_kernel(seeds, positions, sample_indices, output):
    i = tl.program_id(0)
    bits = uniform_bits(tl.load(seeds + i), tl.load(positions + i), tl.load(sample_indices + i))
    tl.store(output + i, bits.to(tl.int64))


def test_random_numbers_are_those_of_philox_to_the_last_bit() -> None:
    generator = torch.Generator().manual_seed(5)
    seeds = torch.randint(-(2**63), 2**63 - 1, (40,), generator=generator)
    seeds[:3] = torch.tensor([0, -1, 2**62])
    positions = torch.randint(0, 2**32, (40,), generator=generator)
    indices = torch.randint(0, 2**32, (40,), generator=generator)
    bits = torch.empty(40, dtype=torch.int64)

    _uniform_bits_kernel[(40,)](seeds, positions, indices, bits)

    assert torch.equal(bits.double() * 2.0**-53, philox_uniform(seeds, positions, indices))


@triton.jit
def _first_above_kernel(weights, targets, output, WIDTH: tl.constexpr):
    i = tl.program_id(0)
    place = first_above(tl.load(weights + tl.arange(0, WIDTH)), 0, tl.load(targets + i))
    tl.store(output + i, place)


def test_no_share_of_the_total_gives_a_token_without_weight() -> None:
    """The ends of the unit interval: 0, and all but 1 of the total of 8."""
    weights, targets = torch.tensor([0, 5, 0, 3]), torch.tensor([0, 4, 5, 7])
    places = torch.empty(4, dtype=torch.int32)

    _first_above_kernel[(4,)](weights, targets, places, 4)

    assert places.tolist() == [1, 1, 3, 3]


def test_draws_follow_the_softmax() -> None:
    logits = torch.tensor([[1.2, -0.3, 0.8, 2.0, -1.5, 0.1, 0.4, 1.1, -0.7, 0.6, 1.7, -0.2]])
    rules = [rule(1.3, min_p=0.1, seed=i) for i in range(1000)]

    tokens = draw(logits.expand(1000, -1), rules)

    probabilities = filtered_scores(logits, SamplingMetadata.build(rules[:1], 12, CPU)).softmax(-1)
    wanted = probabilities[0].double() * 1000
    observed = torch.bincount(torch.tensor(tokens), minlength=12).double()
    assert observed[wanted == 0].sum() == 0
    chi_square = ((observed - wanted).square() / wanted)[wanted > 0].sum()
    assert chi_square < 29.6  # at most 10 degrees of freedom, 0.1%


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(library.VARIANT_VARIABLE, "interpreter")
    library.forget()
    yield
    monkeypatch.undo()
    library.forget()


@pytest.mark.usefixtures("served")
def test_the_sampler_of_the_engine_uses_it_with_and_without_processors() -> None:
    torch.manual_seed(4)
    logits = torch.randn(4, 60)
    rules = [rule(0.9, seed=1), RowSampling(0, 0, 1, 0, 0, 0), rule(0), rule(1.1, 5, 0.8, seed=2)]
    packed = sampling_rules(rules, 60, CPU)
    assert isinstance(packed, PackedSampling)
    assert packed.order == (0, 3, 2)

    def ban(scores: torch.Tensor) -> None:
        scores[:, logits[2].argmax()] = -torch.inf

    for processors in ([], [ban]):
        theirs = sample(logits, SamplingMetadata.build(rules, 60, CPU), processors)
        assert sample(logits, packed, processors).tolist() == theirs.tolist()
    assert sampling_rules([rules[1]], 60, CPU) is None
