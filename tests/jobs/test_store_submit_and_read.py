"""Jobs go into SQL as they were planned, and can be asked about."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from jobs.errors import DatabaseError, JobNotFound, StateConflict
from jobs.records import ChunkSpec, Counts, WindowSpec
from jobs.states import ChunkState, JobState
from jobs.store import Store, submit
from tests.support.job_store import ROWS, StoreUnderTest, new_job, new_plan

pytestmark = pytest.mark.quick


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def test_a_job_is_read_as_it_was_inserted(store: Store) -> None:
    deadline = datetime(2031, 5, 6, tzinfo=UTC)
    new = new_job((2, 1), priority=7, rejected=3, deadline_at=deadline)
    inserted = store.insert_job(new)
    assert inserted == store.job(new.id)
    assert dataclasses.replace(inserted, created_at=deadline) == dataclasses.replace(
        inserted,
        id=new.id,
        state=JobState.QUEUED,
        options=new.options,
        seed=2**63 - 1,
        priority=7,
        version=1,
        published_version=None,
        total_rows=3 * ROWS + 3,
        chunks_total=3,
        chunks_left=3,
        counts=Counts(failed=3),
        stop_reason=None,
        created_at=deadline,
        started_at=None,
        finished_at=None,
        deadline_at=deadline,
    )
    assert abs(datetime.now(UTC) - inserted.created_at) < timedelta(seconds=60)


def test_its_windows_and_chunks(store: Store) -> None:
    job = store.insert_job(new_job((2, 0, 1)))
    windows = store.windows(job.id)
    assert [(w.version, w.chunks_left, w.merged, w.epoch) for w in windows] == [
        (1, 2, None, 0),
        (1, 0, None, 0),
        (1, 1, None, 0),
    ]
    assert windows[2].window == WindowSpec(ordinal=2, first_row=2 * ROWS, rows=ROWS)
    chunks = store.chunks(job.id)
    assert [c.id for c in chunks] == [f"{job.id}-v1-{n:06d}" for n in range(3)]
    assert [c.window for c in chunks] == [0, 0, 2]
    assert {(c.rows, c.state, c.lease_epoch, c.part, c.counts) for c in chunks} == {
        (ROWS, ChunkState.QUEUED, 0, None, Counts())
    }


def test_paths_of_windows_are_kept(store: Store) -> None:
    window = WindowSpec(ordinal=0, first_row=0, rows=9, rejected="r.parquet", base="b.parquet")
    plan = dataclasses.replace(new_plan((1,)), windows=(window,))
    job = store.insert_job(dataclasses.replace(new_job(), plan=plan))
    assert store.windows(job.id)[0].window == window


def test_chunks_go_in_by_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "BATCH", 4)
    job = store.insert_job(new_job((5, 4)))
    assert [c.ordinal for c in store.chunks(job.id)] == list(range(9))


def test_a_job_is_there_whole_or_not_at_all(store: Store) -> None:
    plan = dataclasses.replace(new_plan((1,)), chunks=(ChunkSpec(0, window=5, rows=1),))
    new = dataclasses.replace(new_job(), plan=plan)
    with pytest.raises(DatabaseError, match=r"(?i)foreign key"):
        store.insert_job(new)
    with pytest.raises(JobNotFound):
        store.job(new.id)


def test_an_id_is_used_once(store: Store) -> None:
    job = store.insert_job(new_job())
    with pytest.raises(StateConflict, match=f"there is a job {job.id} already"):
        store.insert_job(new_job(id=job.id))


# ---- ids and their beginnings


@pytest.mark.parametrize("prefix", ["job_abcd", "job_abcdefg1", "job_abcdefg123"])
def test_the_start_of_an_id_is_enough(store: Store, prefix: str) -> None:
    store.insert_job(new_job(id="job_abcdefg123"))
    store.insert_job(new_job(id="job_xbcdefg123"))
    assert store.job(prefix).id == "job_abcdefg123"
    assert store.progress(prefix).job.id == "job_abcdefg123"
    assert store.chunks(prefix)[0].job_id == "job_abcdefg123"
    assert store.windows(prefix)[0].job_id == "job_abcdefg123"


def test_a_whole_id_wins_over_longer_ones(store: Store) -> None:
    for id in ("job_abcd", "job_abcde"):
        store.insert_job(new_job(id=id))
    assert store.job("job_abcd").id == "job_abcd"


def test_an_ambiguous_start_lists_what_it_may_mean(store: Store) -> None:
    for n in range(12):
        store.insert_job(new_job(id=f"job_abcd{n:02d}"))
    with pytest.raises(JobNotFound, match=r"several ids \(job_abcd00, .*job_abcd09, …\)"):
        store.job("job_abcd")
    with pytest.raises(JobNotFound, match=r"\(job_abcd10, job_abcd11\); give more of it"):
        store.job("job_abcd1")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("job_abc", "from 8 characters on"),
        ("", "from 8 characters on"),
        ("job_wxyz", "`pagemill list` shows"),
        ("jobXabcd", "there is no job 'jobXabcd'"),  # `_` stands for itself
        ("job_%bcd", "there is no job 'job_%bcd'"),
        ("job_abcd\udcff", r"there is no job 'job_abcd\\udcff'"),  # a byte that is not UTF-8
        ("job_abcd\0", r"there is no job 'job_abcd\\x00'"),
    ],
)
def test_what_is_no_job(store: Store, asked: str, said: str) -> None:
    store.insert_job(new_job(id="job_abcdefg123"))
    with pytest.raises(JobNotFound, match=said):
        store.job(asked)
    with pytest.raises(JobNotFound, match=said):
        store.events(asked)


# ---- lists and progress


def test_jobs_are_listed_newest_first(back: StoreUnderTest, store: Store) -> None:
    ids = [back.add((1,)).id for _ in range(4)]
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    for day, id in enumerate(ids):
        back.set_job(id, created_at=moment + timedelta(days=day))
    assert [j.id for j in store.list_jobs()] == ids[::-1]
    assert [j.id for j in store.list_jobs(limit=2)] == [ids[3], ids[2]]
    store.request_cancel(ids[1])
    assert [j.id for j in store.list_jobs([JobState.FINALIZING])] == [ids[1]]
    assert len(store.list_jobs({JobState.FINALIZING, JobState.QUEUED})) == 4
    assert store.list_jobs([JobState.FAILED]) == []
    assert [j.id for j in store.list_jobs(model="m", limit=1)] == [ids[-1]]
    assert store.list_jobs(model="M") == store.list_jobs(name="") == []
    since = moment + timedelta(days=2)
    assert [j.id for j in store.list_jobs(since=since)] == [ids[3], ids[2]]
    assert [j.id for j in store.list_jobs(since=since + timedelta(seconds=1))] == [ids[3]]
    back.set_job(ids[0], name="Nächtlich 50%_a")
    for name in ("nächtlich", "50%_A", "Nä"):
        assert [j.id for j in store.list_jobs(name=name)] == [ids[0]]
    assert store.list_jobs(name="5_%") == []


def test_progress_adds_what_running_chunks_reported(store: Store) -> None:
    job = store.insert_job(new_job((3,), rejected=1))
    assert store.progress(job.id).counts == Counts(failed=1)
    first, second = (store.claim_chunk("w", "m") for _ in range(2))
    assert first is not None
    assert second is not None
    live = Counts(completed=2, prompt_tokens=2**40, cached_tokens=3, completion_tokens=4)
    store.renew("w", {second.chunk_id: (second.epoch, live)})
    store.commit_chunk(first, "p", Counts(completed=3, failed=1, prompt_tokens=5))
    seen = store.progress(job.id)
    assert seen.job == store.job(job.id)
    assert seen.job.counts == Counts(completed=3, failed=2, prompt_tokens=5)
    assert seen.counts == seen.job.counts + live
    assert (seen.chunks_running, seen.chunks_done) == (1, 1)
    assert abs(datetime.now(UTC) - seen.now) < timedelta(seconds=60)


def test_rows_of_a_chunk_that_was_handed_back_still_count(store: Store) -> None:
    job = store.insert_job(new_job((3,)))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    kept = Counts(completed=2, prompt_tokens=9)
    store.release_chunk(lease, kept)
    assert store.progress(job.id).counts == kept
    again = store.claim_chunk("w", "m")
    assert again is not None
    assert again.chunk_id == lease.chunk_id
    assert store.progress(job.id).counts == kept


def test_a_stopped_chunk_is_not_done(store: Store) -> None:
    job = store.insert_job(new_job((3,)))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.commit_chunk(lease, "p", Counts(completed=ROWS))
    store.request_cancel(job.id)
    seen = store.progress(job.id)
    assert (seen.chunks_done, seen.job.chunks_left) == (1, 0)


def test_older_versions_stay_readable(back: StoreUnderTest, store: Store) -> None:
    job = back.add((2, 1))
    back.complete(job.id)
    store.reopen(job.id, new_plan((1,)), Counts(completed=ROWS))
    assert {c.version for c in store.chunks(job.id)} == {2}
    assert [c.state for c in store.chunks(job.id, 1)] == [ChunkState.DONE] * 3
    assert [w.merged for w in store.windows(job.id, 1)] == ["w0.parquet", "w1.parquet"]
    assert [w.merged for w in store.windows(job.id)] == [None]


def test_what_is_too_long_to_be_an_id_is_not_said_back_in_full(store: Store) -> None:
    with pytest.raises(JobNotFound, match="has 5,000") as raised:
        store.job("job_" + "x" * 4_996)
    assert len(str(raised.value)) < 300
