"""Many workers at once: every lease is won by one of them."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

from jobs.database import Database
from jobs.records import Counts
from jobs.states import JobState
from jobs.store import Store
from tests.support.claimers import drain
from tests.support.job_store import ROWS, StoreUnderTest

CLAIMERS = 8
CHUNKS = 200


def workers(back: StoreUnderTest) -> Executor:
    """Processes on SQLite, whose locks are those of files; threads on PostgreSQL."""
    if back.database.engine.dialect.name == "sqlite":
        return ProcessPoolExecutor(CLAIMERS, mp_context=multiprocessing.get_context("spawn"))
    return ThreadPoolExecutor(CLAIMERS)


def test_every_lease_is_won_once(back: StoreUnderTest) -> None:
    job = back.add((CHUNKS // 2, CHUNKS // 2))
    url = back.database.url.render_as_string(hide_password=False)
    with workers(back) as pool:
        drained = [pool.submit(drain, url, f"w{n}", job.id) for n in range(CLAIMERS)]
        leases = [lease for future in drained for lease in future.result()]
    by_epoch = Counter((chunk_id, epoch) for chunk_id, epoch, _ in leases)
    assert set(by_epoch.values()) == {1}
    commits = Counter(chunk_id for chunk_id, _, committed in leases if committed)
    assert commits == Counter(c.id for c in back.store.chunks(job.id))
    for chunk in back.store.chunks(job.id):
        # Epochs grow by one with every lease, and none is left out.
        won = sorted(epoch for chunk_id, epoch, _ in leases if chunk_id == chunk.id)
        assert won == list(range(1, chunk.lease_epoch + 1))
    after = back.store.job(job.id)
    assert (after.state, after.chunks_left) == (JobState.FINALIZING, 0)
    assert after.counts == Counts(completed=CHUNKS * ROWS)
    assert [w.chunks_left for w in back.store.windows(job.id)] == [0, 0]


def test_a_cancel_in_the_middle_of_it(back: StoreUnderTest) -> None:
    """Claims, commits and releases of many workers, against a cancel and against sweepers."""
    job = back.add((CHUNKS // 2, CHUNKS // 2))
    url = back.database.url.render_as_string(hide_password=False)

    over = threading.Event()

    def sweep() -> None:
        database = Database(url)
        store = Store(database)
        while store.job(job.id).chunks_left and not over.is_set():
            store.chunks_to_wake(resend_seconds=0.001)
            store.requeue_expired()
            store.jobs_to_finalize()
        database.close()

    with ThreadPoolExecutor(CLAIMERS) as pool:
        sweepers = [pool.submit(sweep) for _ in range(2)]
        # SQLite has no queue for writers: the cancel may lose its turn many times. So the workers
        # leave it some chunks to stop.
        cancelled = threading.Event()
        drained = [
            pool.submit(drain, url, f"w{n}", job.id, CHUNKS // 4, cancelled)
            for n in range(CLAIMERS - 2)
        ]
        try:
            while back.store.job(job.id).chunks_left > CHUNKS * 3 // 4:
                pass
            back.store.request_cancel(job.id)
            cancelled.set()
            committed = sum(ok for future in drained for _, _, ok in future.result())
        except BaseException:
            over.set()  # the pool waits for all of them, who may wait for what never comes
            cancelled.set()
            raise
        for future in sweepers:
            future.result()
    after = back.store.job(job.id)
    assert (after.state, after.stop_reason) == (JobState.FINALIZING, "cancelled")
    states = Counter(c.state for c in back.store.chunks(job.id))
    assert states == {"done": committed, "stopped": CHUNKS - committed}
    assert after.counts == Counts(completed=committed * ROWS)
