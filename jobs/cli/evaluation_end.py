"""From an evaluation to the end of the command that waits for it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, NoReturn

import typer

from jobs.cli.console import note
from jobs.cli.deployment import Deployment
from jobs.cli.evaluating import Answer, exit_code, follow_evaluation, goes_on
from jobs.cli.evaluation_tables import note_summary, show_results, whole_json
from jobs.cli.progress import Display, progress_display
from jobs.cli.wait import TIMED_OUT
from jobs.ctrl_c import INTERRUPTED

if TYPE_CHECKING:
    from jobs.records.evaluations import EvaluationRecord


def end_with(
    deployment: Deployment,
    evaluation_id: str,
    as_json: bool,
    *,
    timeout: float | None = None,
    answer: Answer | None = None,
) -> NoReturn:
    """Follow an evaluation to its end, print what came out, and end as its gate says.

    Ctrl-C ends the waiting (130), and so does the timeout (124); the evaluation goes on.

    Args:
        answer: takes its jobs to their ends, and shows how far they are; by default they are
            waited for.
    """
    displaying = progress_display() if answer is None else nullcontext[Display](lambda _: None)
    try:
        with displaying as display:
            ended = follow_evaluation(deployment, evaluation_id, display, timeout, answer)
    except KeyboardInterrupt:
        note(goes_on(evaluation_id))
        raise typer.Exit(INTERRUPTED) from None
    if ended is None:
        note(f"evaluation {evaluation_id} has not ended within {timeout:g} s; it goes on")
        raise typer.Exit(TIMED_OUT)
    end_as_its_gate(deployment, ended, as_json)


def end_as_its_gate(deployment: Deployment, ended: EvaluationRecord, as_json: bool) -> NoReturn:
    """Print what came out of an evaluation, and end as its gate says."""
    if as_json:
        print(json.dumps(whole_json(deployment, ended)))
    else:
        show_results(deployment, ended)
    note_summary(deployment, ended)
    raise typer.Exit(exit_code(ended))
