"""The last chunks of a job are committed at the same instant: it is finalized, and once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import orjson
import pytest

from jobs.database import Database
from jobs.finalize import drive
from jobs.records import ChunkLease
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from tests.support.job_store import StoreUnderTest
from tests.support.played_job import PlayedJob, Window, add_job

WORKERS = 3
ROUNDS = 15

# The chunks of one window, and chunks of windows of their own, which are merged at once too.
SHAPES = {
    "one-window": [Window([[0, 3], [1], [2, 4]])],
    "windows": [Window([[0, 1]]), Window([[2]]), Window([[3, 4]])],
}


@pytest.fixture
def stores(back: StoreUnderTest) -> Iterator[list[Store]]:
    """One for each worker, with connections of its own."""
    url = back.database.url.render_as_string(hide_password=False)
    with ExitStack() as stack:
        yield [Store(stack.enter_context(closing(Database(url)))) for _ in range(WORKERS)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_last_commits_at_once_end_the_job_once(
    stores: list[Store], tmp_path: Path, shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No sweeper runs here: one of the workers has to see that it was the last."""
    caplog.set_level(logging.INFO, "pagemill.finalize")
    storage = Storage(str(tmp_path / "storage"))
    ids = []
    for _ in range(ROUNDS):
        job = add_job(stores[0], storage, SHAPES[shape])
        ids.append(job.id)
        end_at_once([PlayedJob(store, storage, job.id) for store in stores])
        check_ended_once(job)
    published = [r for r in caplog.records if r.__dict__["event"] == "job_published"]
    assert [record.__dict__["job_id"] for record in published] == ids


def end_at_once(workers: list[PlayedJob]) -> None:
    """Each worker commits a chunk of the job when all are ready, and goes on as workers do."""
    leases = [worker.claim(f"w{number}") for number, worker in enumerate(workers)]
    ready = threading.Barrier(len(workers))

    def end(worker: PlayedJob, lease: ChunkLease) -> None:
        ready.wait(60)
        assert worker.finish(lease)
        drive(worker.store, worker.storage, lease.owner, worker.id)

    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(end, workers, leases))


def check_ended_once(job: PlayedJob) -> None:
    record = job.store.job(job.id)
    assert (record.state, record.chunks_left) == (JobState.COMPLETED, 0)
    assert record.counts.completed == record.total_rows == 5
    assert [row["row_index"] for row in job.published()] == list(range(5))
    assert {window.epoch for window in job.store.windows(job.id)} == {1}
    folder = job.storage.job(record.folder)
    assert orjson.loads(folder.read("v1/_manifest.json"))["rows"] == 5
