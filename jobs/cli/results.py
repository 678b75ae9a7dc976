"""`pagemill results`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import note, plural
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import JobId
from jobs.cli.target import Target, chosen_target
from jobs.cli.target_folder import Folder, chosen_folder
from jobs.errors import StorageError, UsageError
from jobs.formats import OutputFormat

if TYPE_CHECKING:
    from jobs.records import JobRecord
    from jobs.results import OutputRows, PublishedVersion


def results(
    job_id: JobId,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A file, or - for stdout. Into a folder (FOLDER/) goes a file for each part.",
        ),
    ] = "-",
    form: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format",
            help="By PATH's name if not given; JSONL on stdout. openai is JSONL in the form of "
            "an OpenAI batch's output.",
            show_default=False,
        ),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="The rows so far of a job that runs.")
    ] = False,
    version: Annotated[
        int | None, typer.Option(help="A published version; the newest if not given.")
    ] = None,
    single_file: Annotated[
        bool, typer.Option("--single-file", help="All rows in one file, in a folder, too.")
    ] = False,
) -> None:
    """Read the answers of a job, in the order of its input.

    \b
    Examples:
      pagemill results job_abcdefgh -o answers.parquet
      pagemill results job_abcdefgh | jq -r .text
      pagemill results job_abcdefgh --partial -o so-far.jsonl
      pagemill results job_abcdefgh -o answers.csv
      pagemill results job_abcdefgh --format openai -o batch_output.jsonl
      pagemill results job_abcdefgh -o answers/ --format csv
      pagemill results job_abcdefgh -o . --single-file
    """
    if partial and version is not None:
        raise UsageError("--partial and --version cannot be given together")
    folder = chosen_folder(output, form)
    if folder is not None and not single_file:
        if partial:
            raise UsageError("--partial goes into one file: name it, or give --single-file")
        folder.check()
        with opened() as deployment:
            job = deployment.store.job(job_id)
            _write_parts(_version(deployment, job, version), folder)
        return
    named = chosen_target(output, form, "--format") if folder is None else folder
    with opened() as deployment:
        job = deployment.store.job(job_id)
        target = named.file(job.id) if isinstance(named, Folder) else named
        target.refuse_input(job.input_uri)
        written = write_rows(_open(deployment, job, partial, version), target)
        if partial and not written:
            note(f"job {job.id} ({job.state}) has no rows yet")


def _write_parts(version: PublishedVersion, folder: Folder) -> None:
    from jobs.export import export_folder

    rows, files = export_folder(version, folder.path, folder.form)
    note(f"{plural(rows, 'row')} in {plural(files, 'file')} in {folder.given}")


def write_rows(rows: OutputRows, target: Target) -> int:
    """Write rows to a file or to stdout; says how many went into a file, and returns it.

    Raises:
        UsageError: a column has no form in the target's format.
        StorageError: the file or stdout cannot be written.
    """
    from jobs.export import export_file, export_stream

    if target.path is not None:
        number = export_file(rows, target.path, target.form)
        note(f"{plural(number, 'row')} in {target.given}")
        return number
    try:
        number = export_stream(rows, sys.stdout.buffer, target.form)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # `jobs.cli.group` ends quietly
        raise
    except OSError as error:
        raise StorageError(f"cannot write to stdout: {error.strerror or error}") from error
    return number


def _open(deployment: Deployment, job: JobRecord, partial: bool, version: int | None) -> OutputRows:
    from jobs.results import open_partial

    if partial:
        return open_partial(deployment.store, deployment.storage, job)
    return _version(deployment, job, version)


def _version(deployment: Deployment, job: JobRecord, version: int | None) -> PublishedVersion:
    from jobs.results import open_version

    if not job.state.terminal and job.published_version is not None and version is None:
        note(
            f"job {job.id} works on version {job.version}; these are the rows of version "
            f"{job.published_version} (--partial shows the new ones)"
        )
    return open_version(deployment.storage, job, version)
