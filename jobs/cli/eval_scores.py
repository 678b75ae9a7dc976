"""`pagemill eval scores`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from jobs.cli.deployment import opened
from jobs.cli.evaluating import completed
from jobs.cli.evaluation_options import EvaluationId
from jobs.cli.results import write_rows
from jobs.cli.target import chosen_target
from jobs.formats import OutputFormat


class ScoresFormat(StrEnum):
    """How scores may be written."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


def scores(
    evaluation_id: EvaluationId,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="PATH", help="A file, or - for stdout.")
    ] = "-",
    form: Annotated[
        ScoresFormat | None,
        typer.Option(
            "--format", help="By PATH's name if not given; JSONL on stdout.", show_default=False
        ),
    ] = None,
) -> None:
    """Read the score of each row, with its question and answer.

    It says what was right, too, and why a row has no score.

    \b
    Examples:
      pagemill eval scores eval_abcdefgh -o scores.parquet
      pagemill eval scores eval_abcdefgh | jq 'select(."score.exact" == 0)'
    """
    wanted = None if form is None else OutputFormat(form.value)
    target = chosen_target(output, wanted, "--format")
    target.refuse_openai()
    with opened() as deployment:
        from jobs.evaluation.scores_file import ScoreRows, ScoresFile

        found = completed(deployment, evaluation_id)
        assert found.scores_path is not None
        target.refuse_inputs(found.spec["inputs"])
        write_rows(ScoreRows(ScoresFile(deployment.storage, found.scores_path)), target)
