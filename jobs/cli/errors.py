"""`pagemill errors`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli.console import note, one_line, plural, say
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import JobId, Json
from jobs.errors import UsageError
from jobs.states import JobState

if TYPE_CHECKING:
    from jobs.records import JobRecord

_SHOWN = 20  # rows of a code that are listed, unless told otherwise


@dataclass(slots=True)
class _Group:
    """The rows of an error code: how many, and the first of them."""

    code: str
    rows: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


def errors(
    job_id: JobId,
    code: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="Only rows with this error code; repeatable."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"Rows that are listed of each code: {_SHOWN}, and with --json all of them.",
            show_default=False,
        ),
    ] = None,
    by_code: Annotated[
        bool,
        typer.Option("--by-code", help="With --json: an object for each code, not for each row."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the rows without an answer, by kind of error. Works while the job runs.

    \b
    Examples:
      pagemill errors job_abcdefgh
      pagemill errors job_abcdefgh --code prompt_too_long --limit 100
      pagemill errors job_abcdefgh --json | jq -r '.[].line'
      pagemill errors job_abcdefgh --json --by-code | jq '.[] | [.code, .rows]'
    """
    if by_code and not as_json:
        raise UsageError("--by-code is for --json; for people, errors are grouped in any case")
    with opened() as deployment:
        job = deployment.store.job(job_id)
        if job.state is JobState.FAILED:
            note(f"job {job.id} failed as a whole: {job.error_message} [{job.error_code}]")
        found = error_rows(deployment, job)
        if code:
            found = (row for row in found if row["code"] in code)
        if as_json and not by_code:
            _print_json(found if limit is None else _first_of_each(found, limit))
            return
        groups = _grouped(found, _SHOWN if limit is None else limit)
    if as_json:
        print(json.dumps([_group_json(group) for group in groups]))
    else:
        _print_groups(job, groups, code or [])


def error_rows(deployment: Deployment, job: JobRecord) -> Iterator[dict[str, Any]]:
    """The rows of a job that have no answer, in their order, as they are listed."""
    from jobs.results import OutputRows, open_partial, open_version

    rows: OutputRows
    if job.published_version is None:
        rows = open_partial(deployment.store, deployment.storage, job)
    else:
        rows = open_version(deployment.storage, job)
    for group in rows.groups(["row_index", "custom_id", "error"]):
        for row in group.filter(group["error"].is_valid()).to_pylist():
            error = row.pop("error")
            yield {**row, **error}


def _print_json(found: Iterator[dict[str, Any]]) -> None:
    """An array, row by row: there may be more than fit in memory."""
    separator = "["
    for row in found:
        print(separator + json.dumps(row), end="")
        separator = ",\n"
    print("[]" if separator == "[" else "]")


def _first_of_each(found: Iterator[dict[str, Any]], limit: int) -> Iterator[dict[str, Any]]:
    numbers: dict[str, int] = {}
    for row in found:
        numbers[row["code"]] = number = numbers.get(row["code"], 0) + 1
        if number <= limit:
            yield row


def _grouped(found: Iterator[dict[str, Any]], limit: int) -> list[_Group]:
    """By code, that of the most rows first."""
    groups: dict[str, _Group] = {}
    for row in found:
        group = groups.setdefault(row["code"], _Group(row["code"]))
        group.rows += 1
        if len(group.examples) < limit:
            group.examples.append(row)
    return sorted(groups.values(), key=lambda group: (-group.rows, group.code))


def _group_json(group: _Group) -> dict[str, Any]:
    return {"code": group.code, "rows": group.rows, "examples": group.examples}


def _print_groups(job: JobRecord, groups: list[_Group], codes: list[str]) -> None:
    if not groups:
        of = f" of code {' or '.join(codes)}" if codes else ""
        note(f"job {job.id} ({job.state}) has no rows with errors{of}")
    for group in groups:
        say(f"{group.code}: {plural(group.rows, 'row')}")
        for row in group.examples:
            say(f"  {_place(row)}: {one_line(row['message'])}")
        if (more := group.rows - len(group.examples)) and group.examples:
            say(f"  … and {more:,} more (--limit lists more of them, --json all)")


def _place(row: dict[str, Any]) -> str:
    """`line 4, row 3, custom_id five (top_p)`; rows count from 0, lines from 1."""
    place = f"line {row['line']}, row {row['row_index']}"
    if row["custom_id"] is not None:
        place += f", custom_id {one_line(row['custom_id'])}"
    return f"{place} ({row['field']})" if row["field"] else place
