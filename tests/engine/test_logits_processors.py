"""Logits processors of a step: by value and by statistics those of transformers.

Sequences grow token by token, are preempted and come back, share steps with others, and fail half
way: what they are given never differs from what transformers makes of all of their tokens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import bias_table, logits_processors
from engine.batch import ScheduledSequence
from engine.logit_rules import LogitRuleBook, LogitRules
from engine.logits_processors import LogitsProcessors
from engine.sampling_params import SamplingParams
from kernels.sampling import RowSampling, SamplingMetadata, sample
from tests.support.tiny_model import byte_tokenizer
from tests.support.transformers_rules import apply, processors_of, warpers_of

VOCAB = 12
EOS = (3,)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def book() -> LogitRuleBook:
    return LogitRuleBook(byte_tokenizer().backend_tokenizer, VOCAB, EOS)


@dataclass
class Grown:
    """A sequence that is given its tokens one by one."""

    params: SamplingParams
    rules: LogitRules | None
    prompt_token_ids: tuple[int, ...]
    output_token_ids: list[int] = field(default_factory=list)

    def scheduled(self, whole: bool = False) -> ScheduledSequence:
        """Its next step: of the newest token, or of all as after a preemption."""
        tokens = (*self.prompt_token_ids, *self.output_token_ids)
        part = tokens if whole or not self.output_token_ids else tokens[-1:]
        start = len(tokens) - len(part)
        history = self if self.rules else None
        return ScheduledSequence(
            "r", part, start, (), True, self.params, logit_rules=self.rules, history=history
        )

    def expected(self, logits: torch.Tensor) -> torch.Tensor:
        processors = processors_of(self.params, len(self.prompt_token_ids), EOS, VOCAB)
        return apply(processors, (*self.prompt_token_ids, *self.output_token_ids), logits)


def processed(
    processors: LogitsProcessors, sequences: list[ScheduledSequence], logits: torch.Tensor
) -> torch.Tensor:
    scores = logits.clone()
    for process in processors.prepare(sequences, range(len(sequences))):
        process(scores)
    return scores


token = st.integers(0, VOCAB - 1)
params = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 1.0, 0.5, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.5, -0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.7, -2.0]),
    logit_bias=st.dictionaries(token, st.floats(-100, 100, width=32), max_size=3).map(
        lambda found: tuple(found.items())
    ),
    allowed_token_ids=st.none() | st.sets(token, min_size=5).map(tuple),
    bad_words_ids=st.lists(
        st.lists(token, min_size=2, max_size=4).map(tuple), max_size=3, unique=True
    ).map(tuple),
    min_tokens=st.integers(0, 4),
    stop_token_ids=st.sampled_from([(), (5,)]),
    ignore_eos=st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(params, st.lists(token, min_size=1, max_size=6)), min_size=1, max_size=12),
    st.integers(0, 2**31),
)
def test_growing_sequences_get_what_transformers_makes_of_all_their_tokens(
    book: LogitRuleBook, asked: list[tuple[SamplingParams, list[int]]], seed: int
) -> None:
    chance = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    processors = LogitsProcessors(VOCAB, CPU)
    grown = [Grown(p, book.rules_of(p), tuple(prompt)) for p, prompt in asked]
    for _ in range(8):
        # Some are preempted, and are not in this step.
        here = [g for g in grown if chance.random() < 0.7]
        logits = torch.randn(len(here), VOCAB, generator=generator) * 4
        steps = [g.scheduled(whole=chance.random() < 0.2) for g in here]
        if here and chance.random() < 0.2:
            processed(processors, steps, logits)  # a step that had no memory is computed again
        scores = processed(processors, steps, logits)
        for sequence, found, row in zip(here, scores, logits, strict=True):
            torch.testing.assert_close(found, sequence.expected(row), rtol=1e-6, atol=1e-5)
            sequence.output_token_ids.append(chance.randrange(VOCAB))


def test_a_step_that_fails_half_way_counts_nothing_twice(
    book: LogitRuleBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = SamplingParams(
        frequency_penalty=1.0, logit_bias=((2, 1.0),), bad_words_ids=((1, 2, 4),)
    )
    grown = Grown(asked, book.rules_of(asked), (1, 2))
    processors = LogitsProcessors(VOCAB, CPU)
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0))

    def out_of_memory(*args: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    for _ in range(4):
        with monkeypatch.context() as broken:
            broken.setattr(bias_table, "write_token_bias", out_of_memory)
            broken.setattr(logits_processors.TokenCounts, "add", out_of_memory)
            with pytest.raises(torch.OutOfMemoryError):
                processed(processors, [grown.scheduled()], logits)
        scores = processed(processors, [grown.scheduled()], logits)
        torch.testing.assert_close(scores[0], grown.expected(logits[0]))
        grown.output_token_ids.append(2)


def test_rows_that_ask_for_the_same_share_a_place(book: LogitRuleBook) -> None:
    asked = [
        SamplingParams(logit_bias=((2, 1.0),), bad_words_ids=((1, 2),), seed=i) for i in range(100)
    ]
    grown = [Grown(p, book.rules_of(p), (1,)) for p in asked]
    processors = LogitsProcessors(VOCAB, CPU)
    scores = processed(processors, [g.scheduled() for g in grown], torch.zeros(100, VOCAB))
    assert (scores == grown[0].expected(torch.zeros(VOCAB))).all()
    assert processors._biases._slots.size == processors._banned._slots.size == 8
    assert processors._penalties._slots.size == 0


def test_a_request_of_the_same_id_does_not_inherit_counts(book: LogitRuleBook) -> None:
    asked = SamplingParams(presence_penalty=1.0)
    processors = LogitsProcessors(VOCAB, CPU)
    logits = torch.zeros(1, VOCAB)
    first = Grown(asked, book.rules_of(asked), (1,))
    processed(processors, [first.scheduled()], logits)
    first.output_token_ids.append(4)
    processed(processors, [first.scheduled()], logits)
    second = Grown(asked, book.rules_of(asked), (1,), [7])
    scores = processed(processors, [second.scheduled()], logits)
    assert scores[0].nonzero().tolist() == [[7]]


def test_nobody_asks(book: LogitRuleBook) -> None:
    grown = Grown(SamplingParams(), None, (1,))
    assert LogitsProcessors(VOCAB, CPU).prepare([grown.scheduled()] * 3, [0, 2]) == []


DRAWS = 20_000
LOGITS = torch.tensor([1.2, -0.3, 0.8, 2.0, -1.5, 0.1, 0.4, 1.1, -0.7, 0.6, 1.7, -0.2])
PROMPT, ANSWER = (0, 3, 3, 10), [6, 7, 6, 6]
EACH: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.6},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.2},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "presence_penalty": {"presence_penalty": 0.8},
    "frequency_penalty": {"frequency_penalty": -0.4},
    "logit_bias": {"logit_bias": ((4, 3.0), (3, -1.0))},
    "allowed_token_ids": {"allowed_token_ids": (0, 2, 5, 6)},
    "bad_words_ids": {"bad_words_ids": ((6, 6, 3), (6, 10), (10, 0), (7,))},
    "min_tokens": {"min_tokens": 5},
    "all": {
        "temperature": 1.4, "top_k": 9, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.2,
        "presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": ((4, 2.0),),
        "allowed_token_ids": tuple(range(1, 12)), "bad_words_ids": ((6, 10), (9,)),
        "min_tokens": 5,
    },
}  # fmt: skip
# 99.9% quantiles of chi-square, by degrees of freedom.
QUANTILES = (0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32, 26.12, 27.88, 29.59, 31.26)


@pytest.mark.parametrize("name", EACH)
def test_draws_have_the_probabilities_of_transformers(book: LogitRuleBook, name: str) -> None:
    """20,000 rows of one step, each with a seed of its own, beside as many that ask for nothing."""
    asked = SamplingParams(**{"temperature": 1.0, **EACH[name]})
    grown = [Grown(asked, book.rules_of(asked), PROMPT, ANSWER) for _ in range(DRAWS)]
    plain = ScheduledSequence("p", (1,), 0, (), True, SamplingParams(temperature=1.0))
    sequences = [s for g in grown for s in (g.scheduled(whole=True), plain)]
    rules = [
        RowSampling(
            s.params.temperature, s.params.top_k, s.params.top_p, seed, s.end, 0, s.params.min_p,
            processed=s.logit_rules is not None,
        )
        for seed, s in enumerate(sequences)
    ]  # fmt: skip
    metadata = SamplingMetadata.build(rules, VOCAB, CPU)
    assert metadata is not None
    processors = LogitsProcessors(VOCAB, CPU).prepare(sequences, metadata.order)
    tokens = sample(LOGITS.repeat(2 * DRAWS, 1), metadata, processors)
    expected = apply(warpers_of(asked), [0], grown[0].expected(LOGITS)).softmax(-1)
    assert not torch.allclose(expected, LOGITS.softmax(-1), atol=0.01)
    check_chi_square(tokens[::2], expected)
    check_chi_square(tokens[1::2], LOGITS.softmax(-1))


def check_chi_square(tokens: torch.Tensor, probabilities: torch.Tensor) -> None:
    observed = torch.bincount(tokens, minlength=VOCAB).double()
    possible = probabilities > 0
    assert observed[~possible].sum() == 0
    expected = probabilities.double() * len(tokens)
    distance = ((observed - expected).square() / expected)[possible].sum().item()
    assert distance < QUANTILES[int(possible.sum()) - 1]
