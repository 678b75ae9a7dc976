"""The rows of a job that has ended, as scorers read them: in their order, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from jobs import layout
from jobs.evaluation.carried import data_of_output
from jobs.evaluation.keys import row_content, row_key
from jobs.evaluation.rows import ScoredRow
from jobs.job_folder import JobFolder
from jobs.kinds import kind_of_job
from jobs.parquet_files import open_parquet
from jobs.records import JobRecord
from jobs.results import open_version
from jobs.schema import own_fields
from jobs.storage import Storage
from jobs.store import Store

_OURS = ("row_index", "custom_id", "text", "error", "best", "best_normalized")
_ASKED = ("row_index", "prompt", "messages", "continuations")


@dataclass(frozen=True, slots=True)
class AnsweredRow:
    """A row, and the key by which it is found in another evaluation."""

    row: ScoredRow
    key: str


def answered_rows(
    store: Store, storage: Storage, job: JobRecord, target: str | None
) -> Iterator[AnsweredRow]:
    """All rows of a job's newest version, with what they should have said.

    What is held meanwhile are the prompts of one window.

    Args:
        target: the column that says it.

    Raises:
        OutputNotReady: the job has published nothing.
        OutputError: a file is missing or damaged.
    """
    published = open_version(storage, job)
    ours = {field.name for field in own_fields(kind_of_job(job.options))}
    carried = [name for name in published.schema.names if name not in ours]
    columns = [name for name in _OURS if name in ours] + carried
    asked = _Asked(storage.job(job.folder), store, job)
    for table in published.groups(columns):
        own = table.select([name for name in _OURS if name in ours]).to_pylist()
        for row, data in zip(own, data_of_output(table, carried), strict=True):
            yield _row(job, row, data, asked.of(row["row_index"]), target)


def _row(
    job: JobRecord,
    row: Mapping[str, Any],
    data: Mapping[str, Any],
    asked: Mapping[str, Any],
    target: str | None,
) -> AnsweredRow:
    wanted = None if target is None else data.get(target)
    choices = _texts(asked.get("continuations"), data.get("choices"))
    best = row.get("best")
    answer = row["text"]
    if best is not None and choices is not None and best < len(choices):
        answer = choices[best]
    prompt, messages = asked.get("prompt"), asked.get("messages")
    error = row["error"]
    scored = ScoredRow(
        row_index=row["row_index"],
        answer=None if error else answer,
        target=wanted,
        prompt=prompt or messages or "",
        custom_id=row["custom_id"],
        error=error["code"] if error else None,
        columns=data,
        choices=choices,
        best=best,
        best_normalized=row.get("best_normalized"),
    )
    by_columns = bool(job.options.get("template"))  # its prompts are made of them
    content = row_content(
        custom_id=row["custom_id"],
        prompt=None if by_columns else prompt,
        messages=None if by_columns else messages,
        continuations=asked.get("continuations"),
        system=job.options.get("system"),
        data=data if by_columns else {"target": wanted},
    )
    return AnsweredRow(scored, row_key(content))


def _texts(continuations: str | None, choices: Any) -> Sequence[str] | None:
    if continuations is not None:
        found: list[str] = orjson.loads(continuations)
        return found
    is_list = isinstance(choices, list) and all(isinstance(text, str) for text in choices)
    return choices if is_list else None


class _Asked:
    """What the rows ask, from the normalized copy of the job's input, a window at a time."""

    def __init__(self, folder: JobFolder, store: Store, job: JobRecord) -> None:
        self._folder = folder
        # The copies of later versions hold only the rows that were tried again.
        self._windows = [record.window for record in store.windows(job.id, 1)]
        self._groups: dict[int, list[int]] = {}
        for chunk in store.chunks(job.id, 1):
            self._groups.setdefault(chunk.window, []).append(chunk.ordinal)
        self._end = 0
        self._rows: dict[int, dict[str, Any]] = {}

    def of(self, row_index: int) -> Mapping[str, Any]:
        """What that row asks; nothing if it was refused at submit. Rows are asked for in order."""
        while row_index >= self._end and self._windows:
            window = self._windows.pop(0)
            self._end = window.first_row + window.rows
            if row_index < self._end:
                self._rows = self._read(self._groups.get(window.ordinal, []))
        return self._rows.get(row_index, {})

    def _read(self, groups: Sequence[int]) -> dict[int, dict[str, Any]]:
        if not groups:
            return {}
        with open_parquet(self._folder, layout.input_copy(1)) as file:
            columns = [name for name in _ASKED if name in file.schema_arrow.names]
            table: pa.Table = file.read_row_groups(list(groups), columns, use_threads=False)
        return {row["row_index"]: row for row in table.to_pylist()}
