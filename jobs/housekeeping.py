"""What a deployment does not keep for ever."""

from __future__ import annotations

import logging

from jobs.deletion import finish_deletions
from jobs.errors import EvaluationNotFound, JobNotFound, StateConflict, StorageError
from jobs.orphans import orphans, remove_orphan
from jobs.storage import Storage
from jobs.store import Store

log = logging.getLogger("pagemill.housekeeping")

EVERY_SECONDS = 3600.0


def keep_house(store: Store, storage: Storage, retention_seconds: float | None) -> None:
    """Delete what ended long ago, orphans, and what was said of workers and jobs long gone.

    Notifications that were dealt with long ago go, too.

    Workers and beats do it every hour; all of it may be done by several at once.

    Raises:
        DatabaseError, StorageError: one of them cannot be reached.
    """
    store.prune_workers()
    store.prune_events()
    store.prune_notifications()
    if retention_seconds is not None:
        for job in store.jobs_that_ended(retention_seconds):
            delete_old(store, job.id, retention_seconds)
        for evaluation in store.evaluations_that_ended(retention_seconds):
            delete_old_evaluation(store, evaluation.id, retention_seconds)
    finish_deletions(store, storage)
    for name in orphans(store, storage):
        _remove_orphan(store, storage, name)


def _remove_orphan(store: Store, storage: Storage, name: str) -> None:
    """Remove it; one that cannot be removed keeps no other from it."""
    try:
        removed = remove_orphan(store, storage, name)
    except StorageError as error:
        extra = {"event": "orphan_stays", "job_id": name}
        log.warning("the folder of %s, which was never submitted: %s", name, error, extra=extra)
        return
    if removed:
        extra = {"event": "orphan_removed", "job_id": name}
        log.info("the folder of %s, which was never submitted, is removed", name, extra=extra)


def delete_old(store: Store, job_id: str, retention_seconds: float) -> bool:
    """Delete a job whose retention is over; False if it was retried or deleted meanwhile."""
    try:
        return store.delete_job(job_id, "its retention is over", retention_seconds)
    except (StateConflict, JobNotFound):
        return False


def delete_old_evaluation(store: Store, evaluation_id: str, retention_seconds: float) -> bool:
    """The same of an evaluation; False if it was blessed or deleted meanwhile."""
    try:
        return store.delete_evaluation(evaluation_id, retention_seconds)
    except EvaluationNotFound:
        return False
