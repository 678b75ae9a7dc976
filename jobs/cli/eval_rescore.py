"""`pagemill eval rescore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import note
from jobs.cli.deployment import opened
from jobs.cli.evaluating import waiting, within
from jobs.cli.evaluation_end import end_as_its_gate
from jobs.cli.evaluation_options import EvaluationId
from jobs.cli.options import Json
from jobs.cli.progress import progress_display
from jobs.cli.wait import TIMED_OUT
from jobs.ctrl_c import INTERRUPTED

if TYPE_CHECKING:
    from jobs.records.evaluations import EvaluationRecord


def rescore(
    evaluation_id: EvaluationId,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up waiting for its jobs; ends with 124."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score the answers of an evaluation once more.

    Of use if its job was retried, or that of a judge. A job that is on its way is waited for, and
    judges are asked anew of answers that are new. Scores, comparisons (with the baseline of today)
    and what the gate says are replaced together, at the end; whatever ends this earlier leaves
    them as they were. Ends as `eval gate` does.

    \b
    Examples:
      pagemill eval rescore eval_abcdefgh
      pagemill retry job_abcdefgh && pagemill eval rescore eval_abcdefgh --json
    """
    from jobs.evaluation.rescoring import rescored

    found: EvaluationRecord | None
    with opened() as deployment:
        whole = deployment.store.evaluation(evaluation_id).id
        try:
            with progress_display() as display:
                wait = within(waiting(deployment, display), timeout)
                found = rescored(deployment, whole, wait)
        except KeyboardInterrupt:
            note(f"evaluation {whole} is as it was; its jobs go on")
            raise typer.Exit(INTERRUPTED) from None
        if found is None:
            note(f"the jobs of evaluation {whole} have not ended within {timeout:g} s; they go on")
            raise typer.Exit(TIMED_OUT)
        end_as_its_gate(deployment, found, as_json)
