"""From committed parts to a published version, in any process and without a model.

Each window is merged under a lease of its own as soon as its chunks are done, so what is left
at the end is short: give the merged files their published names, write the manifest, then
`_SUCCESS`, then the end in SQL. Every step may be repeated after a crash, and run at the same
time by a process whose lease ran out: files are immutable, the manifest is written once, and
SQL takes the result of the newest lease only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from jobs import layout
from jobs.attempts import attempt, logged
from jobs.errors import OutputError
from jobs.garbage import collect
from jobs.gather import gathered
from jobs.job_folder import JobFolder
from jobs.manifest import FileEntry, describe, manifest_bytes, manifest_files, read_manifest
from jobs.parquet_files import open_parquet
from jobs.parts import (
    FileFacts,
    job_schema,
    open_chunk_inputs,
    some,
    write_output,
)
from jobs.records import (
    ChunkRecord,
    Counts,
    ErrorTally,
    JobRecord,
    MergeLease,
    RowErrorInfo,
    RowResult,
    WindowSpec,
)
from jobs.storage import Storage
from jobs.store import Store
from jobs.tables import STOP_REASONS
from jobs.tallies import tally_errors

log = logging.getLogger("pagemill.finalize")


def drive(store: Store, storage: Storage, owner: str, job_id: str | None = None) -> int:
    """Do every merge and every finalization that is due; returns how many were done here.

    Workers call it after each chunk and in each sweep, `cancel` after a cancellation. Work that
    another process holds is left to it.

    Args:
        owner: who holds the leases meanwhile.
        job_id: look at this job only.

    A job whose files do not add up is failed with code `output_incomplete`. Trouble that may
    pass, such as a full disk, is logged, the job says that it waits, and the next call tries again
    once the lease ran out. So it is with an error that nobody foresaw, but not for ever: after
    `attempts.MOST_FAILURES` tries of one step the job is failed with code `internal_error`.
    """
    done = 0
    for job, window in store.windows_to_merge():
        if job_id in (None, job):
            done += attempt(store, storage, store.claim_window(job, window, owner), merge_window)
    for job in store.jobs_to_finalize():
        if job_id in (None, job):
            done += attempt(store, storage, store.claim_finalization(job, owner), finalize_job)
    for job, version in store.garbage():
        if job_id in (None, job):
            with logged(job, "its garbage is not removed yet"):
                remove_garbage(store, storage, job, version)
    return done


def merge_window(store: Store, storage: Storage, lease: MergeLease) -> bool:
    """Merge the rows of one window into a file, in row order, and tell SQL.

    Returns False where the lease was taken over meanwhile: the file stays, nobody names it.

    Raises:
        OutputError: a row of the window is missing or there twice.
        StorageError: a file cannot be read or written.
    """
    window = _window(lease)
    folder = storage.job(lease.folder)
    path = layout.merged_window(lease.version, window.ordinal, lease.epoch)
    if window.base is not None and window.rejected is None and not lease.chunks:
        folder.link(window.base, path)  # nothing of it was computed again
    else:
        _write_window(folder, store.job(lease.job_id), lease, window, path)
    entry = describe(folder, path)
    if entry.rows != window.rows:
        raise OutputError(f"{folder.at(path)} has {entry.rows} rows in place of {window.rows}")
    with folder.create(_summary(path)) as file:
        file.write(orjson.dumps(entry.to_json()))
    return store.finish_window(lease, path)


def finalize_job(store: Store, storage: Storage, lease: MergeLease) -> bool:
    """Publish the merged windows as the job's version, and end the job.

    Returns False where the lease was taken over meanwhile.

    Raises:
        OutputError: the rows are not those of the job.
        StorageError: a file cannot be read or written.
    """
    folder = storage.job(lease.folder)
    job = store.job(lease.job_id)
    for number, merged in enumerate(lease.merged):
        folder.link(merged, layout.published_part(lease.version, number))
    files = list(_published(folder, lease))
    rows = sum(entry.rows for entry in files)
    if rows != job.total_rows:
        raise OutputError(
            f"job {job.id} has {job.total_rows} rows, but version {lease.version} has {rows}"
        )
    schema = job_schema(folder, layout.input_copy(lease.version))
    content = manifest_bytes(job, schema, files)
    if not folder.create_once(layout.manifest(lease.version), content):
        # Another finalizer was first, and what it wrote may have been read already.
        files = manifest_files(read_manifest(folder, lease.version))
    folder.create_once(layout.success(lease.version), b"")
    counts = sum((entry.counts for entry in files), Counts())
    chunks = store.chunks(job.id, lease.version)
    if not store.finish_job(lease, counts, _errors_of_stopped(folder, lease, chunks)):
        return False
    log.info(
        "job %s: version %d is published, %d rows", job.id, lease.version, rows,
        extra={"event": "job_published", "job_id": job.id, "version": lease.version, "rows": rows},
    )  # fmt: skip
    return True


def remove_garbage(store: Store, storage: Storage, job_id: str, version: int) -> None:
    """Remove what a version that has ended left behind, and tell SQL that it is done.

    Raises:
        StorageError: the storage is not there, or cannot be written.
    """
    folder = storage.job(store.job(job_id).folder)
    merged = (record.merged for record in store.windows(job_id, version))
    storage.check()
    if folder.path.is_dir():
        collect(folder, version, store.chunks(job_id, version), filter(None, merged))
        storage.check()  # what is gone with the storage is not removed
    store.forget_garbage(job_id, version)


def _window(lease: MergeLease) -> WindowSpec:
    if lease.window is None:
        raise ValueError(f"the lease on job {lease.job_id} is for its finalization, not a window")
    return lease.window


def _write_window(
    folder: JobFolder, job: JobRecord, lease: MergeLease, window: WindowSpec, path: str
) -> None:
    with gathered(
        folder, window, lease.chunks, lease.version, job.model, lease.stop_reason
    ) as order:
        missing = order.missing()
        if missing:
            raise OutputError(
                f"window {window.ordinal} of job {job.id} lacks {len(missing)} of its "
                f"{window.rows} rows: {some(missing)}"
            )
        facts = FileFacts(job.id, lease.version, job.model, fingerprint=job.fingerprint)
        write_output(folder, path, order.groups(), order.schema, facts)


def _errors_of_stopped(
    folder: JobFolder, lease: MergeLease, chunks: Iterable[ChunkRecord]
) -> tuple[ErrorTally, ...]:
    """Errors of failed rows whose chunk was stopped; those of other chunks came with a commit."""
    stopped: dict[int, list[pa.ChunkedArray]] = {}
    with open_chunk_inputs(folder, layout.input_copy(lease.version)) as copy:
        for chunk in chunks:
            if chunk.part is None:
                stopped.setdefault(chunk.window, []).append(copy.indices(chunk.ordinal))

    def failed() -> Iterator[RowResult]:
        for window, columns in stopped.items():
            rows = pa.concat_arrays([array for column in columns for array in column.chunks])
            with open_parquet(folder, lease.merged[window]) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, ["row_index", "error"])
                    table = table.filter(pc.is_in(table["row_index"], rows))
                    for row in table.filter(table["error"].is_valid()).to_pylist():
                        if row["error"]["code"] not in STOP_REASONS:
                            yield RowResult(row["row_index"], error=RowErrorInfo(**row["error"]))

    return tally_errors(failed())


def _published(folder: JobFolder, lease: MergeLease) -> Iterator[FileEntry]:
    """The version's files, as they were measured when they were merged."""
    for number, merged in enumerate(lease.merged):
        summary = _summary(merged)
        if folder.exists(summary):
            entry = FileEntry.from_json(orjson.loads(folder.read(summary)))
        else:
            entry = describe(folder, merged)
        published = layout.published_part(lease.version, number)
        yield entry.named(published.rpartition("/")[2])


def _summary(merged: str) -> str:
    return f"{merged}.json"
