"""A worker that claims chunks as fast as it can, for tests with many of them."""

from __future__ import annotations

import random
import threading

from jobs.database import Database
from jobs.records import Counts
from jobs.store import Store
from tests.support.job_store import ROWS


def drain(
    url: str,
    worker_id: str,
    job_id: str,
    pause_at: int = 0,
    go_on: threading.Event | None = None,
) -> list[tuple[str, int, bool]]:
    """Claim until the job has no chunk left; release about one lease in four.

    Args:
        pause_at: so many chunks are left alone until `go_on` is set.

    Returns:
        (chunk id, epoch, whether it was committed) of every lease that it won.
    """
    rng = random.Random(worker_id)
    database = Database(url)
    store = Store(database)
    won: list[tuple[str, int, bool]] = []
    try:
        while left := store.job(job_id).chunks_left:
            if go_on is not None and left <= pause_at:
                go_on.wait()
            lease = store.claim_chunk(worker_id, "m")
            if lease is None:
                continue
            commits = rng.random() < 0.75
            if commits:
                assert store.commit_chunk(lease, f"{worker_id}.parquet", Counts(completed=ROWS))
            else:
                assert store.release_chunk(lease, Counts())
            won.append((lease.chunk_id, lease.epoch, commits))
    finally:
        database.close()
    return won
