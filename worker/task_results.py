"""What a scored or embedded row is answered with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.request import RequestOutput, ScoreOutput
from engine.task import Score
from jobs.records import ContinuationScore, RowResult
from worker.requests import PreparedRow


def task_result(row: PreparedRow, outputs: Sequence[RequestOutput], result: RowResult) -> RowResult:
    """The outcome of a row whose requests are all answered.

    Args:
        result: its number and counts.
    """
    if not isinstance(row.requests[0].task, Score):
        return replace(result, embedding=outputs[0].embedding)
    scores = [output.score for output in outputs if output.score is not None]
    sizes = [len(text.encode()) for text in row.continuations]
    by_byte = [s.logprob / size for s, size in zip(scores, sizes, strict=True)]
    return replace(
        result,
        scores=tuple(map(_score, scores)),
        best=_highest([score.logprob for score in scores]),
        best_normalized=_highest(by_byte),
    )


def _score(score: ScoreOutput) -> ContinuationScore:
    return ContinuationScore(score.logprob, score.is_greedy, score.token_logprobs)


def _highest(values: Sequence[float]) -> int:
    """Of equal ones the first."""
    return max(range(len(values)), key=values.__getitem__)
