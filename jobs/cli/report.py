"""`pagemill report`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import completion
from jobs.cli.console import note
from jobs.cli.deployment import opened
from jobs.cli.options import Json
from jobs.cli.target import STDOUT, writable_path
from jobs.errors import StorageError, UsageError
from jobs.records.evaluations import Role

if TYPE_CHECKING:
    from jobs.report.data import Report

DEFAULT = "report.html"
_OURS = b'<meta name="generator" content="pagemill'
_HEAD = 4096  # bytes of a page in which that is


def _names_and_ids(incomplete: str) -> list[completion.Completion]:
    names = completion.evaluation_names(incomplete)
    return names or completion.evaluation_ids(incomplete)


def _others(incomplete: str) -> list[completion.Completion]:
    roles = [(str(role), "") for role in Role if role.startswith(incomplete)]
    return [*roles, *completion.evaluation_ids(incomplete)]


def report(
    evaluation: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|EVAL_ID]",
            help="A series of evaluations, or one of them; the one that ended last if not given.",
            show_default=False,
            autocompletion=_names_and_ids,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help=f"A file, or - for stdout; {DEFAULT} if not given.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="baseline|previous|EVAL_ID",
            help="What rows and slices are compared with; what the gate names if not given.",
            show_default=False,
            autocompletion=_others,
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=100, help="Newest runs in the plots.")] = 30,
    examples: Annotated[
        int,
        typer.Option(
            min=0, max=1000, help="Rows shown: so many that got worse, and that got better."
        ),
    ] = 50,
    as_json: Json = False,
) -> None:
    """Make one page of HTML of a series of evaluations.

    It has the scores, their course, and the rows that changed.

    \b
    Examples:
      pagemill report nightly -o nightly.html
      pagemill report eval_abcdefgh --against previous --examples 200
      pagemill report nightly --json | jq '.results.comparisons'
    """
    if as_json and output == STDOUT:
        raise UsageError("--json and -o - both write to stdout; give one of them")
    path = None if output == STDOUT or (as_json and output is None) else _path(output)
    from jobs.report.data import gather

    with opened() as deployment:
        store, storage = deployment.store, deployment.storage
        found = gather(store, storage, evaluation, against, runs, examples)
    if found.open:
        have = "evaluation has" if found.open == 1 else "evaluations have"
        note(
            f"{found.open} {have} not ended yet of {found.name}, and the report is without; "
            f"`pagemill eval list {found.name}` shows how far"
        )
    if as_json:
        from jobs.report.shapes import report_json

        print(json.dumps(report_json(found)))
    if path is not None or output == STDOUT:
        _write(found, path, output or DEFAULT)


def _path(output: str | None) -> Path:
    """Where the page goes. What is there is replaced only if it is a report of ours, or empty."""
    path = writable_path(output or DEFAULT)
    if path.is_file():  # a pipe or a device replaces nothing
        try:
            with open(path, "rb") as file:
                head = file.read(_HEAD)
        except OSError as error:
            raise UsageError(
                f"{output or DEFAULT} is there, and cannot be read to see whether it is a report "
                f"({error.strerror}); name another file with -o"
            ) from None
        if head and _OURS not in head:
            raise UsageError(
                f"{output or DEFAULT} is there, and is no report of pagemill; name "
                f"{'another' if output else 'a'} file with -o"
            )
    return path


def _write(found: Report, path: Path | None, given: str) -> None:
    from jobs.files import replacing
    from jobs.report.page import render

    page = render(found).encode()
    if path is None:
        try:
            sys.stdout.buffer.write(page)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # `jobs.cli.group` ends quietly
            raise
        except OSError as error:
            raise StorageError(f"cannot write to stdout: {error.strerror or error}") from error
        return
    try:
        with replacing(path) as file:
            file.write(page)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    note(f"the report of {found.name} ({found.newest.id}) is in {given}")
