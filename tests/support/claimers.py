"""A worker that claims chunks as fast as it can, for tests with many of them."""

from __future__ import annotations

import random

from jobs.database import Database
from jobs.records import Counts
from jobs.store import Store
from tests.support.job_store import ROWS


def drain(url: str, worker_id: str, job_id: str) -> list[tuple[str, int, bool]]:
    """Claim until the job has no chunk left; release about one lease in four.

    Returns:
        (chunk id, epoch, whether it was committed) of every lease that it won.
    """
    rng = random.Random(worker_id)
    database = Database(url)
    store = Store(database)
    won: list[tuple[str, int, bool]] = []
    try:
        while store.job(job_id).chunks_left:
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
