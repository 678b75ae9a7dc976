"""Bad words of several tokens are banned where transformers bans them."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import NoBadWordsLogitsProcessor

from kernels.banned_sequences import (
    ANY_TOKEN,
    BEFORE_THE_PROMPT,
    NO_TOKEN_MATCHES,
    ban_completions,
    ban_completions_reference,
)

VOCAB = 5

tokens = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12)
words = st.lists(
    st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=5).map(tuple), max_size=6, unique=True
)


def arguments(
    rows: list[list[int]], banned: list[list[tuple[int, ...]]], length: int, most: int
) -> tuple[torch.Tensor, ...]:
    tails = [
        [BEFORE_THE_PROMPT] * (length - len(row)) + row[max(0, len(row) - length) :] for row in rows
    ]
    prefixes = [
        [[ANY_TOKEN] * (length + 1 - len(s)) + list(s[:-1]) for s in sequences]
        + [[NO_TOKEN_MATCHES] * length] * (most - len(sequences))
        for sequences in banned
    ]
    last = [[s[-1] for s in sequences] + [0] * (most - len(sequences)) for sequences in banned]
    int32 = torch.int32
    return torch.tensor(tails, dtype=int32), torch.tensor(prefixes, dtype=int32), torch.tensor(last)


@settings(deadline=None)
@given(st.lists(st.tuples(tokens, words), min_size=1, max_size=4), st.integers(4, 6))
def test_the_kernel_agrees_with_the_reference(
    rows: list[tuple[list[int], list[tuple[int, ...]]]], length: int
) -> None:
    logits = torch.randn(len(rows), VOCAB, generator=torch.Generator().manual_seed(0))
    texts, banned = [row[0] for row in rows], [row[1] for row in rows]
    expected = logits.clone()
    ban_completions_reference(expected, texts, banned)
    order = list(reversed(range(len(rows))))
    ban_completions(
        logits,
        torch.tensor(order),
        *arguments([texts[i] for i in order], [banned[i] for i in order], length, 6),
    )
    assert torch.equal(logits, expected)


@settings(deadline=None)
@given(tokens, words.filter(bool))
def test_the_reference_agrees_with_transformers(
    text: list[int], banned: list[tuple[int, ...]]
) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0))
    processor = NoBadWordsLogitsProcessor([list(word) for word in banned], [VOCAB])
    expected = processor(torch.tensor([text]), logits.clone())
    ban_completions_reference(logits, [text], [banned])
    assert torch.equal(logits, expected)


def test_a_row_of_nan_stays_one_and_harms_no_other() -> None:
    scores = torch.zeros(2, VOCAB)
    scores[0] = torch.nan
    ban_completions(
        scores, torch.tensor([0, 1]), *arguments([[1], [1]], [[(1, 2)], [(1, 3)]], 1, 1)
    )
    assert scores[0].isnan().all()
    assert scores[1].tolist() == [0, 0, 0, -torch.inf, 0]
