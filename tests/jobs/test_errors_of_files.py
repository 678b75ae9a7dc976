"""What SQL counts as errors is what the published rows say.

The errors of most rows come with the commit of their chunk. Those of a chunk that was stopped
are in its spool alone until the job ends.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from jobs.finalize import drive
from jobs.records import Counts
from jobs.retry import plan_retry
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob, Window, add_job

WINDOWS = [
    Window([[2, 0], [3, 4]], rejected=[1]),
    Window([[6, 5], [7, 8]]),
    Window([[11, 10]], rejected=[9]),
]


@pytest.fixture
def job(store: Store, tmp_path: Path) -> PlayedJob:
    return add_job(store, Storage(str(tmp_path)), WINDOWS)


def in_sql(tmp_path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        found = connection.execute("SELECT code, rows FROM job_errors WHERE scope = 'row'")
        return dict(found.fetchall())


def examples(tmp_path: Path) -> dict[str, tuple[int, int]]:
    """Row and line of the example of each code."""
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        found = connection.execute("SELECT code, row_index, line FROM job_errors")
        return {code: (row, line) for code, row, line in found.fetchall()}


def in_files(job: PlayedJob, version: int = 1) -> dict[str, int]:
    errors = (row["error"] for row in job.published(version))
    return dict(Counter(error["code"] for error in errors if isinstance(error, dict)))


def end(job: PlayedJob) -> None:
    job.finish_all()
    drive(job.store, job.storage, "me")
    assert job.store.job(job.id).state.terminal


def test_a_completed_job(job: PlayedJob, tmp_path: Path) -> None:
    job.failing = {3, 8}
    end(job)
    assert in_sql(tmp_path) == in_files(job) == {"invalid_json": 2, "nan_logits": 2}


@pytest.mark.parametrize("reason", ["cancelled", "expired"])
def test_failed_rows_in_the_spools_of_a_stopped_job(
    job: PlayedJob, reason: str, tmp_path: Path
) -> None:
    """One chunk is done; two were stopped in the middle, each with a failed row in its spool."""
    job.failing = {0, 5, 7}
    job.finish(job.claim())
    lost, *halves = (job.claim() for _ in range(3))
    for lease, row in zip(halves, (5, 7), strict=True):
        job.spool(lease, [row])
    job.store.request_cancel(job.id, reason)
    for lease in halves:
        # What a worker last reported need not be what it wrote down.
        assert job.store.release_chunk(lease, Counts())
    assert in_sql(tmp_path) == {"invalid_json": 2, "nan_logits": 1}

    assert job.store.requeue_owned(lost.owner) == 1
    drive(job.store, job.storage, "me")

    assert job.store.job(job.id).state == JobState(reason)
    assert in_sql(tmp_path) == in_files(job) == {"invalid_json": 2, "nan_logits": 3, reason: 6}
    assert examples(tmp_path)["nan_logits"][0] == 0


def test_a_spooled_error_that_comes_first_is_the_example(job: PlayedJob, tmp_path: Path) -> None:
    job.failing = {2, 8}
    first = job.claim()
    job.spool(first, [2])
    while (lease := job.store.claim_chunk("v", "the-model")) is not None:
        job.finish(lease)
    assert examples(tmp_path)["nan_logits"][0] == 8
    job.store.request_cancel(job.id)
    job.store.release_chunk(first, Counts())
    drive(job.store, job.storage, "me")
    assert in_sql(tmp_path) == in_files(job)
    assert examples(tmp_path)["nan_logits"] == (2, 3)


def test_retries_of_a_cancelled_job(job: PlayedJob, tmp_path: Path) -> None:
    job.failing = {3, 5}
    job.finish(job.claim())
    job.finish(job.claim())
    half = job.claim()
    job.spool(half, [5])
    job.store.request_cancel(job.id)
    job.store.release_chunk(half, Counts(failed=1))
    drive(job.store, job.storage, "me")
    assert in_sql(tmp_path) == in_files(job, 1)
    assert in_sql(tmp_path) == {"invalid_json": 2, "nan_logits": 2, "cancelled": 5}

    for version, failing in ((2, {5, 7}), (3, {7}), (4, set[int]())):
        job.failing = failing
        job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
        assert in_sql(tmp_path) == {"invalid_json": 2}
        end(job)
        expected = {"invalid_json": 2} | ({"nan_logits": len(failing)} if failing else {})
        assert in_sql(tmp_path) == in_files(job, version) == expected
