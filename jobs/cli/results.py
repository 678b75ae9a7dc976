"""`pagemill results`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import note, plural
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import JobId
from jobs.errors import UsageError
from jobs.formats import Format, format_of

if TYPE_CHECKING:
    from jobs.records import JobRecord
    from jobs.results import OutputRows


def results(
    job_id: JobId,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="PATH", help="A file, or - for stdout.")
    ] = "-",
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", help="By PATH's name if not given; JSONL on stdout.", show_default=False
        ),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="The rows so far of a job that runs.")
    ] = False,
    version: Annotated[
        int | None, typer.Option(help="A published version; the newest if not given.")
    ] = None,
) -> None:
    """Read the answers of a job, in the order of its input.

    \b
    Examples:
      pagemill results job_abcdefgh -o answers.parquet
      pagemill results job_abcdefgh | jq -r .text
      pagemill results job_abcdefgh --partial -o so-far.jsonl
    """
    if partial and version is not None:
        raise UsageError("--partial and --version cannot be given together")
    form = chosen_format(output, form)
    with opened() as deployment:
        job = deployment.store.job(job_id)
        rows = _open(deployment, job, partial, version)
        write_rows(rows, output, form)


def chosen_format(output: str, form: Format | None) -> Format:
    """The format that was asked for.

    Raises:
        UsageError: Parquet would go to a terminal.
    """
    if output != "-":
        return form or format_of(Path(output)) or Format.PARQUET
    if form is Format.PARQUET and sys.stdout.isatty():
        raise UsageError(
            "Parquet is not for a terminal; name a file with -o, or use --format jsonl"
        )
    return form or Format.JSONL


def write_rows(rows: OutputRows, output: str, form: Format) -> None:
    """Write rows to a file or to stdout; says how many went into a file."""
    from jobs.export import export_file, export_stream

    if output == "-":
        export_stream(rows, sys.stdout.buffer, form)
        sys.stdout.buffer.flush()
    else:
        number = export_file(rows, Path(output), form)
        note(f"{plural(number, 'row')} in {output}")


def _open(deployment: Deployment, job: JobRecord, partial: bool, version: int | None) -> OutputRows:
    from jobs.results import open_partial, open_version

    if partial:
        return open_partial(deployment.store, deployment.storage, job)
    if not job.state.terminal and job.published_version is not None and version is None:
        note(
            f"job {job.id} works on version {job.version}; these are the rows of version "
            f"{job.published_version} (--partial shows the new ones)"
        )
    return open_version(deployment.storage, job, version)
