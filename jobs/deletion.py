"""The files of jobs that were deleted in SQL."""

from __future__ import annotations

import logging

from jobs import layout
from jobs.errors import JobsError
from jobs.storage import Storage
from jobs.store import Store

log = logging.getLogger("pagemill.deletion")


def delete_jobs(store: Store, storage: Storage, *job_ids: str, detail: str | None = None) -> None:
    """Delete jobs that have ended, with all their files.

    Raises:
        StateConflict: a job has not ended.
        StorageError: files cannot be removed. The job is gone all the same, and
            `finish_deletions` tries again.
    """
    for job_id in job_ids:
        store.delete_job(job_id, detail)
    for job_id, folder in store.deletions():
        if job_id in job_ids:
            _remove_files(store, storage, job_id, folder)


def finish_deletions(store: Store, storage: Storage) -> int:
    """Remove what deletions left behind that were killed, or met a disk that refused.

    Workers and beats do it again and again. Returns how many jobs it was done for.
    """
    done = 0
    for job_id, folder in store.deletions():
        try:
            _remove_files(store, storage, job_id, folder)
        except JobsError as error:
            extra = {"event": "deletion_unfinished", "job_id": job_id}
            log.warning(
                "job %s: not deleted yet, will be tried again: %s", job_id, error, extra=extra
            )
        else:
            done += 1
            log.info("job %s: deleted", job_id, extra={"event": "job_deleted", "job_id": job_id})
    return done


def _remove_files(store: Store, storage: Storage, job_id: str, folder: str) -> None:
    storage.remove(layout.run_log(job_id))
    storage.remove(folder)
    store.forget_deletion(job_id)
