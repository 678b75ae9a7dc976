"""Planning the next version."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.errors import OutputNotReady, StateConflict
from jobs.finalize import drive
from jobs.records import ChunkSpec, Counts
from jobs.results import open_version
from jobs.retry import plan_retry
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob, Window, add_job


@pytest.fixture
def job(store: Store, tmp_path: Path) -> PlayedJob:
    windows = [
        Window([[2, 0], [3, 4]], rejected=[1]),
        Window([[6, 5]]),
        Window([[8, 7]], rejected=[9]),
    ]
    return add_job(store, Storage(str(tmp_path)), windows)


def end(job: PlayedJob, failing: set[int]) -> None:
    job.failing = failing
    job.finish_all()
    drive(job.store, job.storage, "me")


def test_only_failed_rows_are_planned_each_in_its_window(job: PlayedJob) -> None:
    end(job, {0, 3, 8})

    plan, counts = plan_retry(job.store, job.storage, job.id)

    assert plan.input_path == "_input/v2.parquet"
    assert plan.chunks == (ChunkSpec(0, 0, 2), ChunkSpec(1, 2, 1))
    assert [w.base for w in plan.windows] == [f"v1/part-0000{n}.parquet" for n in range(3)]
    assert [(w.first_row, w.rows, w.rejected) for w in plan.windows] == [
        (0, 5, None),
        (5, 2, None),
        (7, 3, None),
    ]
    assert (plan.total_rows, plan.rejected) == (10, 0)
    assert counts == Counts(failed=3, prompt_tokens=12)


def test_the_new_copy_holds_the_rows_as_they_were(job: PlayedJob) -> None:
    end(job, {0, 3, 8})
    folder = job.storage.job(job.id)
    first = pq.read_table(folder.at("_input/v1.parquet")).to_pylist()

    plan, _ = plan_retry(job.store, job.storage, job.id)

    copy = pq.ParquetFile(folder.at(plan.input_path))
    with copy:
        assert copy.num_row_groups == len(plan.chunks)
        rows = copy.read().to_pylist()
    assert rows == [row for row in first if row["row_index"] in (0, 3, 8)]


def test_a_retry_publishes_a_second_version_beside_the_first(job: PlayedJob) -> None:
    end(job, {0, 3, 8})
    before = job.published(1)

    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    end(job, {3})

    record = job.store.job(job.id)
    assert (record.state, record.published_version) == (JobState.COMPLETED, 2)
    assert record.counts == Counts(7, 3, 0, 0, 32, 14, 21)
    assert job.published(1) == before
    errors = [row["row_index"] for row in job.published(2) if row["error"]]
    assert errors == [1, 3, 9]


def test_a_window_without_failed_rows_is_the_same_file(job: PlayedJob) -> None:
    end(job, {0})
    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    end(job, set())

    folder = job.storage.job(job.id)
    assert folder.at("v2/part-00001.parquet").samefile(folder.at("v1/part-00001.parquet"))


def test_a_third_version_builds_on_the_second(job: PlayedJob) -> None:
    end(job, {0, 3})
    for failing in ({3}, set[int]()):
        job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
        end(job, failing)

    assert job.store.job(job.id).published_version == 3
    assert [row["row_index"] for row in job.published(3) if row["error"]] == [1, 9]


def test_chunks_are_filled_up_but_not_over_their_size(store: Store, tmp_path: Path) -> None:
    """Many chunks with a failed row each make few chunks."""
    chunks = [[row, row + 1, row + 2] for row in range(0, 30, 3)]
    job = add_job(store, Storage(str(tmp_path)), [Window(chunks)])
    end(job, set(range(0, 30, 3)))

    plan, _ = plan_retry(store, job.storage, job.id)

    assert [chunk.rows for chunk in plan.chunks] == [3, 3, 3, 1]


def test_cancelled_rows_are_answered_by_a_retry(job: PlayedJob) -> None:
    job.finish(job.claim())
    job.store.request_cancel(job.id, "cancelled")
    drive(job.store, job.storage, "me")

    plan, counts = plan_retry(job.store, job.storage, job.id)

    assert counts == Counts(cancelled=6)
    assert sum(chunk.rows for chunk in plan.chunks) == 6
    job.store.reopen(job.id, plan, counts)
    end(job, set())
    assert job.store.job(job.id).counts == Counts(8, 2, 0, 0, 32, 16, 24)


def test_a_job_without_errors_has_nothing_to_retry(store: Store, tmp_path: Path) -> None:
    job = add_job(store, Storage(str(tmp_path)), [Window([[0, 1]])])
    end(job, set())

    with pytest.raises(StateConflict, match="no rows with errors"):
        plan_retry(store, job.storage, job.id)


def test_rows_refused_at_submit_are_to_be_mended_in_the_file(job: PlayedJob) -> None:
    end(job, set())

    with pytest.raises(StateConflict, match=r"2 rows .* refused at submit; mend them in the file"):
        plan_retry(job.store, job.storage, job.id)
    assert not job.storage.job(job.id).exists("_input/v2.parquet")


def test_a_plan_that_another_retry_has_overtaken_is_refused(job: PlayedJob) -> None:
    end(job, {0})
    late = plan_retry(job.store, job.storage, job.id)
    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    end(job, {0})
    with pytest.raises(StateConflict, match="retried in the meantime"):
        job.store.reopen(job.id, *late)
    assert job.store.job(job.id).published_version == 2


def test_a_job_that_runs_is_not_retried(job: PlayedJob) -> None:
    with pytest.raises(StateConflict, match="is queued; wait"):
        plan_retry(job.store, job.storage, job.id)


def test_a_failed_job_is_to_be_submitted_again(job: PlayedJob) -> None:
    job.store.fail_job(job.id, "model_unavailable", "no model")

    with pytest.raises(StateConflict, match="published nothing; submit its file again"):
        plan_retry(job.store, job.storage, job.id)


# ---- a retry that failed as a whole


def failed_retry(job: PlayedJob) -> None:
    """Version 1 lacks rows 0, 3 and 8; version 2 has answered the first two, and has failed."""
    end(job, {0, 3, 8})
    job.failing = set()
    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    job.finish(job.claim())
    lease = job.claim()
    assert job.store.fail_job(job.id, "files_damaged", "torn", lease)


def test_a_retry_that_failed_is_retried_upon_the_version_before(job: PlayedJob) -> None:
    failed_retry(job)
    before = job.published(1)

    plan, counts = plan_retry(job.store, job.storage, job.id)

    assert (plan.input_path, plan.follows) == ("_input/v3.parquet", 2)
    assert [w.base for w in plan.windows] == [f"v1/part-0000{n}.parquet" for n in range(3)]
    # What the version that failed had answered is answered again.
    assert [chunk.rows for chunk in plan.chunks] == [2, 1]
    opened = job.store.reopen(job.id, plan, counts)
    assert (opened.state, opened.version, opened.published_version) == (JobState.QUEUED, 3, 1)
    assert opened.counts == Counts(5, 2, 0, 0, 20, 10, 15)
    assert (opened.error_code, opened.error_message) == (None, None)
    end(job, {8})

    record = job.store.job(job.id)
    assert (record.state, record.published_version) == (JobState.COMPLETED, 3)
    assert record.counts == Counts(7, 3, 0, 0, 32, 14, 21)
    assert job.published(1) == before
    kept = {row["row_index"]: row["text"] for row in before if row["error"] is None}
    after = {row["row_index"]: row["text"] for row in job.published(3) if row["error"] is None}
    assert kept.items() <= after.items()
    assert after.keys() - kept.keys() == {0, 3}


def test_what_a_retry_that_failed_left_behind_is_removed(job: PlayedJob) -> None:
    end(job, {0, 3, 8})
    job.failing = set()
    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    lease = job.claim()
    job.spool(lease, [0])
    assert job.store.fail_job(job.id, "files_damaged", "torn", lease)
    drive(job.store, job.storage, "me")
    spool = job.storage.job(job.id).at(f"_spool/{lease.chunk_id}")
    assert spool.exists()  # as long as it may be read

    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    drive(job.store, job.storage, "me")
    assert not spool.exists()


def test_a_worker_of_the_version_that_failed_changes_nothing(job: PlayedJob) -> None:
    end(job, {0, 3, 8})
    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    late = job.claim()
    job.store.fail_job(job.id, "model_unavailable", "no model")
    opened = job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    assert not job.finish(late)
    assert not job.store.fail_job(job.id, "files_damaged", "late", late)
    assert job.store.job(job.id) == opened


def test_a_version_that_failed_cannot_be_read(job: PlayedJob) -> None:
    failed_retry(job)
    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    end(job, set())
    record = job.store.job(job.id)
    assert open_version(job.storage, record, 1).counts().completed == 5
    assert open_version(job.storage, record).counts() == record.counts
    with pytest.raises(OutputNotReady, match=r"version 2 .* was never published"):
        open_version(job.storage, record, 2)


def test_a_retry_may_fail_again_and_again(job: PlayedJob) -> None:
    end(job, {0})
    for version in (2, 3, 4):
        job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
        assert job.store.job(job.id).version == version
        assert job.store.fail_job(job.id, "model_unavailable", "no model")
    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))
    end(job, set())
    record = job.store.job(job.id)
    assert (record.state, record.published_version) == (JobState.COMPLETED, 5)
    assert [row["row_index"] for row in job.published(5) if row["error"]] == [1, 9]
