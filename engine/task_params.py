"""Sampling parameters have no place beside a task: it samples nothing."""

from __future__ import annotations

from dataclasses import fields

from engine.errors import RequestError
from engine.sampling_params import SamplingParams
from engine.task import Task

_AT_REST = SamplingParams()


def check_task_params(task: Task, params: SamplingParams) -> None:
    """Refuse a parameter that would change nothing.

    Raises:
        RequestError: `invalid_parameter`.
    """
    if params == _AT_REST:
        return
    asked = (f.name for f in fields(params))
    name = next(n for n in asked if getattr(params, n) != getattr(_AT_REST, n))
    if name == "grammar" and params.grammar is not None:
        name = params.grammar.field  # what the row calls it
    raise RequestError(
        "invalid_parameter",
        f"{name} means nothing to {type(task).__name__}, which samples no tokens; leave it out",
        name,
    )
