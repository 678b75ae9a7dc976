"""Mending in SQL what nobody looks after any more."""

from __future__ import annotations

import logging

from jobs.store import Store

log = logging.getLogger("pagemill.sweep")


def mend(store: Store) -> int:
    """Queue chunks again whose lease ran out, and end jobs whose deadline has passed.

    Every worker does it again and again, so does `pagemill beat`, and so does a command that
    waits for a job. All of it is compare-and-set in SQL, so it does not matter how many do.

    Returns:
        How many chunks are queued again.

    Raises:
        DatabaseError: the database cannot be reached, or stays locked.
    """
    cut = store.cut_times()
    if cut:
        log.warning(
            "the database's clock was put back: %d leases and waits that lay far ahead are cut",
            cut,
            extra={"event": "clock_put_back", "times": cut},
        )  # fmt: skip
    requeued = store.requeue_expired()
    if requeued:
        log.info(
            "%d chunks were lost by their workers and are queued again", requeued,
            extra={"event": "chunks_requeued", "chunks": requeued},
        )  # fmt: skip
    expired = store.expire_overdue()
    if expired:
        extra = {"event": "jobs_expired", "jobs": expired}
        log.info("%d jobs are past their deadline", expired, extra=extra)
    return requeued
