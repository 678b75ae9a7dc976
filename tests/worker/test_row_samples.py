"""Several answers to one row: their order, what they cost, and what becomes of a failed one."""

from __future__ import annotations

import itertools

import pytest

from engine import request as engine
from engine.messages import TokenCounts
from engine.request import FinishReason, Request, RequestOutput
from engine.task import Score
from jobs.records import Choice, Counts, RowErrorInfo, TokenLogprob, TopLogprob
from worker.requests import PreparedRow
from worker.row_samples import RowSamples

pytestmark = pytest.mark.quick


def row(n):
    return PreparedRow(7, 11, tuple(Request(f"r{i}", (1,), sample_index=i) for i in range(n)))


def output(sample, reason=FinishReason.STOP, cached=0, completion=2, **more):
    return RequestOutput(
        f"r{sample}", (1, 2), f"text {sample}", reason, 100, cached, completion, **more
    )


def failure(sample, code="nan_logits"):
    return output(sample, FinishReason.ERROR, error_code=code, error_message=f"why {sample}")


def gathered(*outputs):
    samples = RowSamples(row(len(outputs)))
    for sample, answer in enumerate(outputs):
        assert not samples.complete
        samples.add(sample, answer)
    assert samples.complete
    return samples.result(line=9)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_choices_are_in_the_order_of_the_samples(order):
    samples = RowSamples(row(3))
    for sample in order:
        samples.add(sample, output(sample, completion=sample + 1))
    result = samples.result(line=9)
    assert result.choices == tuple(Choice(f"text {i}", "stop", i + 1) for i in range(3))
    assert (result.row_index, result.seed, result.text) == (7, 11, "text 0")
    assert result.completion_tokens == 6


def test_the_answers_of_a_search_are_choices_the_best_first():
    beams = tuple(
        engine.BeamOutput((1,) * length, f"beam {length}", FinishReason.STOP, -1.0)
        for length in (3, 2)
    )
    result = gathered(output(0, completion=5, beams=beams))
    assert result.choices == (Choice("beam 3", "stop", 3), Choice("beam 2", "stop", 2))
    assert (result.text, result.completion_tokens) == ("beam 3", 5)
    assert gathered(output(0, completion=3, beams=beams[:1])).choices is None


def test_one_answer_has_no_choices():
    result = gathered(output(0, FinishReason.LENGTH, cached=64))
    assert result.choices is None
    assert (result.text, result.finish_reason) == ("text 0", "length")
    assert (result.prompt_tokens, result.cached_tokens, result.completion_tokens) == (100, 64, 2)


def test_the_prompt_counts_once_and_only_what_no_sample_computed_is_cached():
    """Whichever sample led: what it had to compute was not cached."""
    for cached in itertools.permutations((16, 96, 96)):
        result = gathered(*(output(i, cached=c) for i, c in enumerate(cached)))
        assert (result.prompt_tokens, result.cached_tokens) == (100, 16)


def test_a_row_with_a_failed_sample_is_an_error_that_names_it():
    result = gathered(output(0), failure(1), failure(2, "engine_error"))
    assert result.error == RowErrorInfo(
        "nan_logits", "sample 1 of 3 (counted from 0): why 1", 9, None
    )
    assert (result.text, result.choices, result.logprobs) == (None, None, None)
    assert result.finish_reason == "error"
    assert result.completion_tokens == 6  # they were computed


def test_an_error_of_all_samples_is_one_of_the_row():
    assert gathered(failure(0), failure(1)).error == RowErrorInfo("nan_logits", "why 0", 9, None)
    assert gathered(failure(0)).error == RowErrorInfo("nan_logits", "why 0", 9, None)


def test_log_probabilities_are_kept_for_each_choice():
    def token(i):
        return (i, f"t{i}", b"t", -0.5), (i + 1, "other", -2.0)

    outputs = [
        output(
            i,
            logprobs=tuple(
                engine.TokenLogprob(*chosen, (engine.TopLogprob(*top),))
                for chosen, top in [token(i)]
            ),
        )
        for i in range(2)
    ]
    expected = [
        (TokenLogprob(*chosen, (TopLogprob(*top),)),) for chosen, top in (token(0), token(1))
    ]
    result = gathered(*outputs)
    assert result.logprobs == expected[0]
    assert [c.logprobs for c in result.choices] == expected
    assert gathered(output(0, logprobs=())).logprobs == ()


def test_live_counts_are_those_of_the_samples_that_were_begun():
    samples = RowSamples(row(3))
    assert samples.counts({}) == Counts()
    running = {"r0": TokenCounts(100, 0, 4), "r1": TokenCounts(100, 96, 3)}
    assert samples.counts(running) == Counts(prompt_tokens=100, completion_tokens=7)
    samples.add(0, output(0, completion=5))
    assert samples.counts(running) == Counts(prompt_tokens=100, completion_tokens=8)


def test_an_answer_that_nobody_foresaw_is_the_row_s_own_error():
    """Whoever takes answers serves all rows of the worker."""
    scored = Request("r0", (1, 2), task=Score(1))
    samples = RowSamples(PreparedRow(7, None, (scored,), continuations=(" no",)))
    samples.add(0, output(0))  # without a score
    result = samples.result(line=9)
    assert (result.row_index, result.finish_reason) == (7, "error")
    assert result.error is not None
    assert (result.error.code, result.error.line) == ("engine_error", 9)
    assert "ValueError" in result.error.message
