"""One addition does what `SequenceBias` and bans of single tokens do in transformers."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import NoBadWordsLogitsProcessor, SequenceBiasLogitsProcessor

from kernels.token_bias import add_token_bias, write_token_bias

VOCAB = 40


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100, width=32), min_size=1),
    st.sets(st.integers(0, VOCAB - 1), min_size=1),
)
def test_biases_and_bans_are_those_of_transformers(
    biases: dict[int, float], banned: set[int]
) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0))
    table = torch.full((3, VOCAB), torch.nan)
    entries = biases | dict.fromkeys(banned, -torch.inf)
    write_token_bias(
        table,
        torch.tensor([1]),
        torch.tensor([0.0]),
        torch.tensor([VOCAB + token for token in entries]),
        torch.tensor(list(entries.values())),
    )
    scores = logits.clone()
    add_token_bias(scores, torch.tensor([0]), table, torch.tensor([1]))
    ids = torch.tensor([[0]])
    expected = SequenceBiasLogitsProcessor([[[t], b] for t, b in biases.items()])(ids, logits)
    expected = NoBadWordsLogitsProcessor([[t] for t in banned], [VOCAB])(ids, expected)
    assert torch.equal(scores, expected)


def test_rows_get_their_slots_and_may_share_them() -> None:
    table = torch.zeros(4, VOCAB)
    write_token_bias(
        table,
        torch.tensor([3, 1]),
        torch.tensor([-torch.inf, 0.0]),
        torch.tensor([3 * VOCAB + 5, VOCAB + 6]),
        torch.tensor([2.0, 7.0]),
    )
    scores = torch.ones(4, VOCAB)
    add_token_bias(scores, torch.tensor([2, 0, 1]), table, torch.tensor([3, 1, 3]))
    for row in (1, 2):
        assert scores[row].isfinite().nonzero().tolist() == [[5]]
        assert scores[row, 5] == 3
    assert scores[0, 6] == 8
    assert scores[0].sum() == VOCAB + 7
    assert torch.equal(scores[3], torch.ones(VOCAB))


def test_a_row_is_written_anew() -> None:
    table = torch.full((2, VOCAB), -torch.inf)
    none = torch.tensor([], dtype=torch.int64)
    write_token_bias(table, torch.tensor([1]), torch.tensor([0.0]), none, none.float())
    assert table[0].isinf().all()
    assert not table[1].any()
