"""Penalties are those of transformers and of OpenAI's formula; counts survive any order."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

from kernels.penalties import Penalties, TokenCounts, apply_penalties

VOCAB = 23
CPU = torch.device("cpu")

tokens = st.lists(st.integers(0, VOCAB - 1), max_size=30)
penalty = st.sampled_from([1.0, 0.5, 1.3, 2.0, 100.0, 0.01])
openai = st.sampled_from([0.0, -2.0, 0.7, 2.0])


def counted(prompts: list[list[int]], answers: list[list[int]], slots: list[int]) -> TokenCounts:
    """Counts of some sequences in a table that has held others."""
    counts = TokenCounts.empty(max(slots) + 1, VOCAB, CPU)
    counts.in_prompt.fill_(True)
    counts.generated.fill_(77)
    counts.begin(torch.tensor(slots), flat(slots, prompts))
    counts.add(flat(slots, answers))
    return counts


def flat(slots: list[int], token_ids: list[list[int]]) -> torch.Tensor:
    return torch.tensor(
        [slot * VOCAB + t for slot, row in zip(slots, token_ids, strict=True) for t in row],
        dtype=torch.int64,
    )


def column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values)[:, None]


@settings(deadline=None)
@given(
    st.lists(st.tuples(tokens, tokens, penalty, openai, openai), min_size=1, max_size=5),
    st.integers(0, 2**31),
)
def test_penalties_are_those_of_the_references(
    rows: list[tuple[list[int], list[int], float, float, float]], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(rows) + 2, VOCAB, generator=generator) * 5
    logits[0, 3] = 0.0
    where = torch.randperm(len(rows) + 2, generator=generator)[: len(rows)]
    slots = torch.randperm(len(rows) + 3, generator=generator)[: len(rows)].tolist()
    scores = logits.clone()
    apply_penalties(
        scores,
        where,
        counted([row[0] for row in rows], [row[1] for row in rows], slots),
        torch.tensor(slots),
        Penalties(*(column([row[i] for row in rows]) for i in (2, 4, 3))),
    )
    for index, (prompt, answer, repetition, frequency, presence) in zip(
        where.tolist(), rows, strict=True
    ):
        expected = logits[index : index + 1].clone()
        if prompt or answer:
            processor = RepetitionPenaltyLogitsProcessor(repetition)
            expected = processor(torch.tensor([prompt + answer]), expected)
        for token, count in Counter(answer).items():
            expected[0, token] -= count * frequency
            expected[0, token] -= presence
        torch.testing.assert_close(scores[index], expected[0], rtol=1e-6, atol=1e-6)
    others = [i for i in range(len(logits)) if i not in where.tolist()]
    assert torch.equal(scores[others], logits[others])


def test_a_repetition_penalty_alone_is_bitwise_that_of_transformers() -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(1)) * 9
    prompt, answer = [1, 2, 3, 3], [4, 5, 5]
    scores = logits.clone()
    counts, zero = counted([prompt], [answer], [0]), column([0.0])
    penalties = Penalties(column([1.37]), zero, zero)
    apply_penalties(scores, torch.tensor([0]), counts, torch.tensor([0]), penalties)
    expected = RepetitionPenaltyLogitsProcessor(1.37)(torch.tensor([prompt + answer]), logits)
    assert torch.equal(scores, expected)


def test_banned_tokens_stay_banned() -> None:
    scores = torch.full((1, VOCAB), -torch.inf)
    scores[0, 5] = 1.0
    counts = counted([list(range(VOCAB))], [[1, 1, 5]], [0])
    penalties = Penalties(column([0.5]), column([-2.0]), column([-2.0]))
    apply_penalties(scores, torch.tensor([0]), counts, torch.tensor([0]), penalties)
    assert scores[0].isfinite().nonzero().tolist() == [[5]]


def test_the_same_token_may_be_counted_twice_at_once() -> None:
    counts = counted([[], [7]], [[3, 3, 3], [3]], [1, 0])
    counts.add(flat([1, 0], [[3], [9]]))
    assert counts.generated[1].nonzero().tolist() == [[3]]
    assert counts.generated[1, 3] == 4
    assert counts.generated[0].nonzero().tolist() == [[3], [9]]
    assert counts.in_prompt.nonzero().tolist() == [[0, 7]]
