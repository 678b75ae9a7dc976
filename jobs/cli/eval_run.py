"""`pagemill eval run`."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import note, plural
from jobs.cli.deployment import Deployment, opened
from jobs.cli.evaluating import FAILED, Answer, drive, say_it_goes_on
from jobs.cli.evaluation_end import end_with
from jobs.cli.evaluation_options import EvaluationOptions
from jobs.cli.options import EngineOptions, Json, with_groups
from jobs.cli.watching import progress_display
from jobs.errors import UsageError

if TYPE_CHECKING:
    from jobs.evaluation.spec import EvaluationSpec
    from jobs.records import JobRecord
    from jobs.records.evaluations import EvaluationRecord


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
    """Ask a model the rows of some files, score its answers, and compare them with earlier ones.

    Ends with 0 if the gate is passed or there is none, 10 if a rule is broken, 11 if too many rows
    have no score, 12 if the evaluation failed. Ctrl-C leaves it resumable (`pagemill eval wait`).

    \b
    Examples:
      pagemill eval run questions.jsonl --model smollm2-135m --scorer exact --max-tokens 16
      pagemill eval run 'evals/*.parquet' --model ./llama --scorer numeric --slice topic --name math
      pagemill eval run q.jsonl --model m --scorer f1 --gate 'f1:drop<=0.02,p<0.05' --json
    """
    spec = options.spec()
    spec.make_scorers()  # what they lack is told before a model is loaded
    with opened(create=True) as deployment:
        evaluation = _inserted(deployment, spec, _series(name, spec))
        answer = _with_worker(deployment, evaluation, engine) if worker else None
        end_with(deployment, evaluation.id, as_json, answer=answer)


def _inserted(deployment: Deployment, spec: EvaluationSpec, name: str) -> EvaluationRecord:
    """A new evaluation whose rows can be read."""
    from jobs.evaluation.dataset import describe
    from jobs.ids import new_id
    from jobs.records.evaluations import Trigger

    found = describe(deployment, spec)
    files = plural(len(found.files), "file")
    refused = f", {found.refused:,} of which cannot be answered" if found.refused else ""
    note(f"{plural(found.rows, 'row')} in {files}{refused}; data set {found.hash[:12]}")
    evaluation_id = new_id("eval")
    deployment.store.insert_evaluation(
        evaluation_id, name=name, spec=spec.to_json(), trigger=Trigger.ONCE
    )
    note(f"evaluation {evaluation_id} of {name}")
    return deployment.store.evaluation(evaluation_id)


def _with_worker(
    deployment: Deployment, evaluation: EvaluationRecord, engine: EngineOptions
) -> Answer:
    """Answers the jobs of an evaluation, one after the other, with workers of our own."""
    from jobs.cli.run import answer, log_of
    from jobs.cli.supervising import WorkerLeft

    def answered(job: JobRecord, _: float | None) -> bool:
        note(f"job {job.id}, answered by a worker whose log is {log_of(deployment, job)}")
        try:
            answer(deployment, job, engine, progress_display())
        except WorkerLeft as left:
            if left.reason is None:  # we were told to leave, and so was it
                say_it_goes_on(evaluation.id)
                raise
            # A job that nobody can answer was failed, and so the evaluation is.
            if not drive(deployment, evaluation.id):
                say_it_goes_on(evaluation.id)
                raise typer.Exit(FAILED) from None
        return True

    return answered


def _series(name: str | None, spec: EvaluationSpec) -> str:
    """The name of the series.

    Raises:
        UsageError: it can be none.
    """
    from jobs.evaluation.rules import NAME

    if name is None:
        stem = PurePosixPath(spec.inputs[0]).name.split(".")[0]
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64] or "evaluation"
    if re.fullmatch(NAME, name) is None:
        raise UsageError(
            f"--name is {name!r}; it must be letters, digits, dots, dashes and underscores, at "
            "most 64 of them, and begin with a letter or a digit"
        )
    return name
