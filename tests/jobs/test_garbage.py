"""What versions leave behind goes, also if it was still there when the next version ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.database import Database
from jobs.finalize import drive
from jobs.retry import plan_retry
from jobs.storage import Storage
from jobs.store import Store
from tests.support.dying_player import reopen
from tests.support.on_disk import check_clean
from tests.support.played_job import PlayedJob, Window, add_job

WINDOWS = [Window([[0, 1], [2]]), Window([[3]])]


@pytest.fixture
def hasty(database_url: str) -> Iterator[Store]:
    database = Database(database_url)
    yield Store(database, lease_seconds=0.05)
    database.close()


def finished(job: PlayedJob) -> None:
    """Finish a version whose garbage cannot be removed; its chunks leave spools."""
    while (lease := job.store.claim_chunk("w", "the-model")) is not None:
        job.spool(lease, job.rows_of(lease))
        job.finish(lease)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.finalize.remove_garbage", lambda *_: None)
        deadline = time.monotonic() + 60
        while not job.store.job(job.id).state.terminal:
            assert time.monotonic() < deadline
            drive(job.store, job.storage, "me")


@pytest.mark.parametrize("versions", [2, 3])
def test_the_garbage_of_several_versions_goes(hasty: Store, tmp_path: Path, versions: int) -> None:
    job = add_job(hasty, Storage(str(tmp_path / "storage")), WINDOWS)
    job.failing = {1}
    finished(job)
    for _ in range(versions - 1):
        version = hasty.job(job.id).version
        job.store.reopen(job.id, *plan_retry(hasty, job.storage, job.id))
        assert hasty.job(job.id).version == version + 1
        finished(job)
    assert hasty.garbage() == [(job.id, 1)]
    for version in range(1, versions + 1):
        assert hasty.garbage() == [(job.id, version)]
        drive(hasty, job.storage, "me")
    assert hasty.garbage() == []
    check_clean(hasty, job.storage, job.id)


def test_the_garbage_of_a_version_goes_while_the_next_is_worked_on(
    hasty: Store, tmp_path: Path
) -> None:
    job = add_job(hasty, Storage(str(tmp_path / "storage")), WINDOWS)
    job.failing = {1}
    finished(job)
    job.failing = set()
    reopen(job)
    lease = job.claim()
    job.spool(lease, job.rows_of(lease))
    drive(hasty, job.storage, "me")
    assert hasty.garbage() == []
    assert spools(job) == [lease.chunk_id]
    job.finish(lease)
    finished(job)
    drive(hasty, job.storage, "me")
    check_clean(hasty, job.storage, job.id)


def spools(job: PlayedJob) -> list[str]:
    return [path.name for path in job.storage.job(job.id).at("_spool").iterdir()]
