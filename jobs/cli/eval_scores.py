"""`pagemill eval scores`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli.deployment import opened
from jobs.cli.evaluating import completed
from jobs.cli.evaluation_options import EvaluationId
from jobs.cli.results import write_rows
from jobs.cli.target import chosen_target
from jobs.errors import UsageError
from jobs.formats import OutputFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.evaluation.scores_file import ScoresFile


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
    """Read the score of each row: what was asked and answered, what was right, and why.

    \b
    Examples:
      pagemill eval scores eval_abcdefgh -o scores.parquet
      pagemill eval scores eval_abcdefgh | jq -r 'select(."score.exact" == 0) | .answer'
    """
    wanted = None if form is None else OutputFormat(form.value)
    target = chosen_target(output, wanted, "--format")
    if target.form is OutputFormat.OPENAI:
        raise UsageError("scores have no form of OpenAI's; use parquet, jsonl or csv")
    with opened() as deployment:
        from jobs.evaluation.scores_file import ScoresFile

        found = completed(deployment, evaluation_id)
        assert found.scores_path is not None
        write_rows(_Rows(ScoresFile(deployment.storage, found.scores_path)), target)


class _Rows:
    """Scores as `jobs.export` takes rows; without what a computer alone needs."""

    version = 1

    def __init__(self, file: ScoresFile) -> None:
        import pyarrow as pa

        self._file = file
        kept = [field for field in file.schema if not field.name.startswith("counts.")]
        self.schema: pa.Schema = pa.schema(kept)

    @property
    def job(self) -> Any:
        raise NotImplementedError  # asked for by the format of OpenAI alone

    def groups(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        import pyarrow as pa

        for batch in self._file.batches(columns or self.schema.names):
            yield pa.Table.from_batches([batch])
