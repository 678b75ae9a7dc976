"""Planning the next version of a job: the rows that got no answer, once more."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from jobs import layout
from jobs.errors import StateConflict
from jobs.job_folder import JobFolder
from jobs.manifest import count_rows
from jobs.parquet_files import open_parquet
from jobs.records import ChunkSpec, Counts, JobRecord, Plan, WindowSpec
from jobs.results import PublishedVersion, open_version
from jobs.row_set import RowSet
from jobs.states import JobState, how_to_end
from jobs.storage import Storage
from jobs.store import Store

_FIRST = layout.input_copy(1)  # holds every row that was not refused at submit


def plan_retry(store: Store, storage: Storage, job_id: str) -> tuple[Plan, Counts]:
    """Plan to answer the failed rows of the newest version; writes their normalized copy.

    Rows that were refused at submit would be refused again: they stay as they are. Of a version
    that failed nothing is taken over, so its rows are answered again, upon the version before.
    Returns the plan, and the counts that its rows have in the published version.

    Raises:
        StateConflict: the job has not ended, or there is nothing to answer again.
        OutputError: a file of the job is missing or damaged.
        StorageError: the copy cannot be written.
    """
    job = store.job(job_id)
    if not job.state.terminal:
        raise StateConflict(f"job {job.id} is {job.state}; {how_to_end(job.id, job.state)}")
    if job.published_version is None:
        raise StateConflict(
            f"job {job.id} {job.state} and published nothing; submit its file again "
            f"(`pagemill results {job.id} --partial` reads what was answered)"
        )
    published = open_version(storage, job)
    failed = _failed_rows(published)
    if not len(failed):
        raise StateConflict(f"job {job.id} has no rows with errors; there is nothing to retry")
    folder = storage.job(job.folder)
    groups = list(_row_groups(folder, failed))
    if not groups:
        raise StateConflict(
            f"the {len(failed)} rows of job {job.id} that have errors were all refused at "
            f"submit; mend them in the file and submit it again (`pagemill errors {job.id}` "
            "lists them)"
        )
    windows = _windows(store, job)
    chunks, rows = _write_copy(folder, job.version + 1, groups, failed, windows, job.total_rows)
    plan = Plan(
        layout.input_copy(job.version + 1),
        windows,
        chunks,
        job.total_rows,
        rejected=0,
        follows=job.version,
        published=published.counts() if job.state is JobState.FAILED else None,
    )
    return plan, _counts_of(published, rows)


def _failed_rows(published: PublishedVersion) -> RowSet:
    failed = RowSet(published.job.total_rows)
    for table in published.groups(["row_index", "error"]):
        failed.add(table.filter(table["error"].is_valid())["row_index"].to_pylist())
    return failed


def _counts_of(published: PublishedVersion, rows: RowSet) -> Counts:
    counts = Counts()
    columns = ["row_index", "error", "prompt_tokens", "cached_tokens", "completion_tokens"]
    for table in published.groups(columns):
        counts += count_rows(rows.of(table))
    return counts


def _row_groups(folder: JobFolder, failed: RowSet) -> Iterator[int]:
    """The row groups of the first copy that hold failed rows."""
    with open_parquet(folder, _FIRST) as file:
        for group in range(file.num_row_groups):
            if failed.of(file.read_row_group(group, ["row_index"])).num_rows:
                yield group


def _windows(store: Store, job: JobRecord) -> tuple[WindowSpec, ...]:
    """The windows of the job, each upon the file that was published for it."""
    assert job.published_version is not None
    windows = (record.window for record in store.windows(job.id, job.published_version))
    return tuple(
        replace(
            window,
            rejected=None,
            base=layout.published_part(job.published_version, window.ordinal),
        )
        for window in windows
    )


def _write_copy(
    folder: JobFolder,
    version: int,
    groups: Sequence[int],
    failed: RowSet,
    windows: Sequence[WindowSpec],
    total: int,
) -> tuple[tuple[ChunkSpec, ...], RowSet]:
    """Write the rows to answer, a row group a chunk; returns the chunks and these rows."""
    chunks: list[ChunkSpec] = []
    written = RowSet(total)
    with (
        open_parquet(folder, _FIRST) as source,
        folder.create(layout.input_copy(version)) as target,
        pq.ParquetWriter(
            target,
            source.schema_arrow,
            compression="zstd",
            use_dictionary=False,
            write_statistics=False,
        ) as writer,
    ):
        for window, rows in _chunks(source, groups, failed, windows):
            writer.write_table(rows, row_group_size=rows.num_rows)
            chunks.append(ChunkSpec(len(chunks), window, rows.num_rows))
            written.add(rows["row_index"].to_pylist())
    return tuple(chunks), written


def _chunks(
    source: pq.ParquetFile,
    groups: Sequence[int],
    failed: RowSet,
    windows: Sequence[WindowSpec],
) -> Iterator[tuple[int, pa.Table]]:
    """Failed rows as (window, chunk): in the planner's order, no chunk over two windows."""
    most = max(source.metadata.row_group(i).num_rows for i in range(source.num_row_groups))
    starts = [window.first_row for window in windows]
    held: list[pa.Table] = []
    current = 0
    for group in groups:
        table = failed.of(source.read_row_group(group))
        window = bisect.bisect_right(starts, table["row_index"][0].as_py()) - 1
        if held and (window != current or sum(t.num_rows for t in held) >= most):
            yield from _cut(current, held, most)
            held = []
        current = window
        held.append(table)
    yield from _cut(current, held, most)


def _cut(window: int, held: list[pa.Table], most: int) -> Iterator[tuple[int, pa.Table]]:
    table = pa.concat_tables(held)
    for start in range(0, table.num_rows, most):
        yield window, table.slice(start, most)
