"""`pagemill eval run`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli.console import note
from jobs.cli.deployment import opened
from jobs.cli.evaluating import goes_on, with_worker
from jobs.cli.evaluation_end import end_with
from jobs.cli.evaluation_options import EvaluationOptions
from jobs.cli.options import EngineOptions, Json, with_groups
from jobs.cli.progress import progress_display
from jobs.cli.supervising import WorkerLeft


@with_groups
def run(
    options: EvaluationOptions,
    engine: EngineOptions,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The series that it belongs to, and is compared within; by the first INPUT's "
            "name if not given.",
        ),
    ] = None,
    worker: Annotated[
        bool,
        typer.Option(
            "--worker/--no-worker",
            help="Answer with a worker of our own, or leave it to those that run.",
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Ask a model the rows of some files, and score its answers.

    They are compared with those of earlier runs of the same name.

    Ends with 0 if the gate is passed or there is none, 10 if a rule is broken, 11 if too many rows
    have no score, 12 if the evaluation failed. Ctrl-C leaves it resumable (`pagemill eval wait`).

    \b
    Examples:
      pagemill eval run q.jsonl --model smollm2-135m --scorer exact
      pagemill eval run 'evals/*.parquet' --model m --scorer numeric --name math
      pagemill eval run q.jsonl --model m --scorer f1 --gate 'f1:drop<=0.02'
    """
    from jobs.evaluation.beginning import begun, series_name

    spec = options.spec()
    spec.make_scorers()  # what they lack is told before a model is loaded
    with opened(create=True) as deployment:
        evaluation = begun(deployment, spec, series_name(name, spec), note)
        answer = (
            with_worker(deployment, evaluation.id, engine, progress_display) if worker else None
        )
        try:
            end_with(deployment, evaluation.id, as_json, answer=answer)
        except WorkerLeft:
            note(goes_on(evaluation.id))
            raise
