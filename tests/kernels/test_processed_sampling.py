"""Rows whose logits are processed before they are sampled, beside rows that ask for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernels import sampling
from kernels.banned_sequences import ban_completions
from kernels.greedy import NO_TOKEN
from kernels.penalties import Penalties, TokenCounts, apply_penalties
from kernels.sampling import NOTHING_LEFT, RowSampling, SamplingMetadata, sample
from kernels.token_bias import add_token_bias, write_token_bias

VOCAB = 50
CPU = torch.device("cpu")

pytestmark = pytest.mark.quick


def rule(temperature: float, processed: bool, **more: float) -> RowSampling:
    return RowSampling(temperature, 0, more.get("top_p", 1.0), 0, 0, 0, 0.0, processed)


def random_logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(0))


def test_processors_see_the_rows_that_ask_in_the_order_of_the_metadata() -> None:
    logits = random_logits(5)
    before = logits.clone()
    rules = [rule(0, False), rule(0, True), rule(1, False), rule(0, True), rule(1, True)]
    metadata = SamplingMetadata.build(rules, VOCAB, CPU)
    assert metadata is not None
    assert metadata.order == (2, 4, 1, 3)
    assert metadata.rows.tolist() == [2, 4, 1, 3]
    seen: list[torch.Tensor] = []

    def pin(scores: torch.Tensor) -> None:
        seen.append(scores.clone())
        scores[1:].fill_(-torch.inf)
        for row, token in ((1, 7), (2, 8), (3, 9)):
            scores[row, token] = -30.0

    tokens = sample(logits, metadata, [pin]).tolist()
    assert torch.equal(seen[0], before[[2, 4, 1, 3]])
    assert torch.equal(logits, before)
    plain = sample(logits, SamplingMetadata.build([rule(0, False), rule(1, False)], VOCAB, CPU))
    assert tokens == [before[0].argmax().item(), 8, tokens[2], 9, 7]
    assert plain[0] == tokens[0]
    alone = SamplingMetadata.build([rules[2]], VOCAB, CPU)
    assert sample(logits[2:3], alone).item() == tokens[2]


def test_a_batch_that_asks_for_nothing_is_greedy_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert SamplingMetadata.build([rule(0, False)] * 3, VOCAB, CPU) is None
    logits = random_logits(3)
    monkeypatch.setattr(sampling, "_filter", None)
    assert sample(logits, None).tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_a_token_left_is_told_apart_from_one_that_is_not_finite(
    temperature: float,
) -> None:
    logits = random_logits(4)
    logits[2, 5] = torch.nan
    metadata = SamplingMetadata.build([rule(temperature, True, top_p=0.9)] * 4, VOCAB, CPU)

    def ban(scores: torch.Tensor) -> None:
        scores[1:3].fill_(-torch.inf)
        scores[3, 4] = torch.inf

    tokens = sample(logits, metadata, [ban]).tolist()
    assert 0 <= tokens[0] < VOCAB
    assert tokens[1:] == [NOTHING_LEFT, NO_TOKEN, NO_TOKEN]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_of_equal_scores_greedy_takes_the_lowest_id(temperature: float) -> None:
    metadata = SamplingMetadata.build([rule(temperature, True)], VOCAB, CPU)

    def tie(scores: torch.Tensor) -> None:
        scores.fill_(-torch.inf)
        scores[0, [9, 11, 30]] = 2.0

    token = sample(random_logits(1), metadata, [tie]).item()
    assert token in ((9,) if temperature == 0 else (9, 11, 30))


def meta_processors(rows: int) -> list[Callable[[torch.Tensor], None]]:
    device = torch.device("meta")
    index = torch.zeros(rows, dtype=torch.int64, device=device)
    table = torch.zeros(rows, VOCAB, device=device)
    column = torch.zeros(rows, 1, device=device)
    counts = TokenCounts.empty(rows, VOCAB, device)
    tails = torch.zeros(rows, 2, dtype=torch.int32, device=device)
    prefixes = torch.zeros(rows, 3, 2, dtype=torch.int32, device=device)
    last = torch.zeros(rows, 3, dtype=torch.int64, device=device)
    write_token_bias(table, index, column[:, 0], index, column[:, 0])
    counts.begin(index, index)
    counts.add(index)
    return [
        lambda scores: add_token_bias(scores, index, table, index),
        lambda scores: apply_penalties(
            scores, index, counts, index, Penalties(column, column, column)
        ),
        lambda scores: ban_completions(scores, index, tails, prefixes, last),
    ]


def test_nothing_waits_for_the_device() -> None:
    """Tensors of the meta device have no values, so whoever asks for one fails."""
    logits = torch.zeros(6, VOCAB, device="meta")
    rules = [RowSampling(1.0, 5, 0.9, i, 0, 0, 0.1, True) for i in range(3)]
    rules += [rule(0, True), rule(0, False), rule(0.5, False)]
    metadata = SamplingMetadata.build(rules, VOCAB, logits.device)
    assert metadata is not None
    tokens = sample(logits, metadata, meta_processors(len(metadata.order)))
    assert (tokens.shape, tokens.device.type) == ((6,), "meta")
