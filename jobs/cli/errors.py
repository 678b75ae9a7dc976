"""`pagemill errors`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jobs.cli.console import note, one_line, plural, say
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import JobId, Json
from jobs.states import JobState

if TYPE_CHECKING:
    from jobs.records import JobRecord

_SHOWN = 20  # rows of a code that are listed for people


def errors(job_id: JobId, as_json: Json = False) -> None:
    """List the rows without an answer, by kind of error. Works while the job runs.

    \b
    Examples:
      pagemill errors job_abcdefgh
      pagemill errors job_abcdefgh --json | jq -r '.[].line'
    """
    with opened() as deployment:
        job = deployment.store.job(job_id)
        if job.state is JobState.FAILED:
            note(f"job {job.id} failed as a whole: {job.error_message} [{job.error_code}]")
        found = error_rows(deployment, job)
        if as_json:
            _print_json(found)
        else:
            _print_groups(job, found)


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


def _print_groups(job: JobRecord, found: Iterator[dict[str, Any]]) -> None:
    numbers: dict[str, int] = {}
    listed: dict[str, list[str]] = {}
    for row in found:
        code = row["code"]
        numbers[code] = numbers.get(code, 0) + 1
        lines = listed.setdefault(code, [])
        if len(lines) < _SHOWN:
            field = f" ({row['field']})" if row["field"] else ""
            lines.append(f"  line {row['line']}{field}: {one_line(row['message'])}")
    if not numbers:
        note(f"job {job.id} ({job.state}) has no rows with errors")
    for code in sorted(numbers, key=lambda code: (-numbers[code], code)):
        say(f"{code}: {plural(numbers[code], 'row')}")
        say("\n".join(listed[code]))
        if numbers[code] > _SHOWN:
            say(f"  … and {numbers[code] - _SHOWN:,} more (--json lists all)")
