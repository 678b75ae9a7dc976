"""The answers to one row, of which there are several where the row asks for `n`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from engine import request as engine
from engine.messages import TokenCounts
from engine.request import FinishReason, RequestOutput
from engine.task import Score
from jobs.records import Choice, Counts, RowErrorInfo, RowResult, TokenLogprob, TopLogprob
from worker.requests import PreparedRow
from worker.task_results import task_result

log = logging.getLogger("pagemill.worker")


class RowSamples:
    """Collects the answers to a row's requests, in whatever order they come.

    The samples share their prompt, so its tokens count once. Of the prompt, as much counts as
    cached as each of the samples found in the cache: what the first one had to compute was
    computed, although the others found it there.

    Of a row that is scored, the samples are its continuations: they share the context, and what
    each has beside it counts too.

    A row whose samples are not all answered is an error row: its consumer asked for `n` choices.
    """

    def __init__(self, row: PreparedRow) -> None:
        self.row = row
        self._outputs: list[RequestOutput | None] = [None] * len(row.requests)

    def add(self, sample: int, output: RequestOutput) -> None:
        self._outputs[sample] = output

    @property
    def complete(self) -> bool:
        return None not in self._outputs

    def counts(self, running: Mapping[str, TokenCounts]) -> Counts:
        """Tokens so far of a row that is not complete."""
        tokens = [
            _token_counts(output) if output is not None else running.get(request.request_id)
            for request, output in zip(self.row.requests, self._outputs, strict=True)
        ]
        return self._counts([t for t in tokens if t is not None])

    def result(self, line: int) -> RowResult:
        """The outcome of a complete row; an error where nothing can be made of its answers.

        Args:
            line: of the row in the input, for its error.
        """
        try:
            return self._result(line)
        except Exception as error:  # it would end the worker, and the next one that has the row
            index = self.row.row_index
            log.exception("nothing can be made of the answers to row %d", index)
            message = (
                f"nothing can be made of the engine's answer ({type(error).__name__}: {error}); "
                "the worker's log has more"
            )
            info = RowErrorInfo("engine_error", message, line)
            return RowResult(index, finish_reason=FinishReason.ERROR, error=info)

    def _result(self, line: int) -> RowResult:
        outputs = [output for output in self._outputs if output is not None]
        counts = self._counts(list(map(_token_counts, outputs)))
        task = self.row.requests[0].task
        error = _error(outputs, line, "sample" if task is None else "continuation")
        choices = None
        if error is None and task is None:
            choices = tuple(c for o in outputs for c in _choices(o))
        result = RowResult(
            self.row.row_index,
            text=None if choices is None else choices[0].text,
            finish_reason=FinishReason.ERROR if error is not None else outputs[0].finish_reason,
            prompt_tokens=counts.prompt_tokens,
            cached_tokens=counts.cached_tokens,
            completion_tokens=counts.completion_tokens,
            seed=self.row.seed,
            error=error,
            choices=choices if choices is not None and len(choices) > 1 else None,
            logprobs=None if choices is None else choices[0].logprobs,
            prompt_logprobs=None if error is not None else _logprobs(outputs[0].prompt_logprobs),
        )
        if error is not None or task is None:
            return result
        return task_result(self.row, outputs, result)

    def _counts(self, samples: list[TokenCounts]) -> Counts:
        prompt = max((s.prompt for s in samples), default=0)
        task = self.row.requests[0].task
        if isinstance(task, Score) and prompt:
            prompt = task.context + sum(max(0, s.prompt - task.context) for s in samples)
        return Counts(
            prompt_tokens=prompt,
            cached_tokens=min((s.cached for s in samples), default=0),
            completion_tokens=sum(s.completion for s in samples),
        )


def _token_counts(output: RequestOutput) -> TokenCounts:
    return TokenCounts(output.prompt_tokens, output.cached_tokens, output.completion_tokens)


def _error(outputs: list[RequestOutput], line: int, what: str = "sample") -> RowErrorInfo | None:
    failed = [i for i, o in enumerate(outputs) if o.finish_reason is FinishReason.ERROR]
    if not failed:
        return None
    output = outputs[failed[0]]
    message = output.error_message or "the engine could not answer the row"
    if len(failed) < len(outputs):
        message = f"{what} {failed[0]} of {len(outputs)} (counted from 0): {message}"
    return RowErrorInfo(output.error_code or "engine_error", message, line, output.error_field)


def _choices(output: RequestOutput) -> tuple[Choice, ...]:
    """The answers in one output: several only where beams were searched."""
    if output.beams:
        return tuple(
            Choice(beam.text, beam.finish_reason, len(beam.token_ids)) for beam in output.beams
        )
    logprobs = _logprobs(output.logprobs)
    return (Choice(output.text, output.finish_reason, output.completion_tokens, logprobs),)


def _logprobs(tokens: tuple[engine.TokenLogprob, ...] | None) -> tuple[TokenLogprob, ...] | None:
    """The engine's words, which know no job, in those of the jobs, which know no engine."""
    if tokens is None:
        return None
    return tuple(
        TokenLogprob(
            token.token_id,
            token.token,
            token.bytes,
            token.logprob,
            tuple(TopLogprob(top.token_id, top.token, top.logprob) for top in token.top),
        )
        for token in tokens
    )
