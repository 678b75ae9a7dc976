"""The view `job_errors` at each stage of a job."""

from __future__ import annotations

import dataclasses

import pytest

from jobs.records import Counts, ErrorTally
from jobs.store import Store
from jobs.tables import row_errors
from tests.support.job_store import ROWS, StoreUnderTest, half_done, new_job, new_plan, tallies

pytestmark = pytest.mark.quick


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def errors(back: StoreUnderTest, job_id: str) -> dict[str, int]:
    """Rows by code."""
    return {
        row["code"]: row["rows"] for row in back.view("job_errors", job_id) if row["scope"] == "row"
    }


def test_errors_of_a_running_job_are_those_of_its_finished_chunks(back: StoreUnderTest) -> None:
    job_id = half_done(back)
    assert errors(back, job_id) == {"invalid_json": 1, "nan_logits": 1}
    (refused,) = (e for e in back.view("job_errors", job_id) if e["code"] == "invalid_json")
    assert refused == {
        "job_id": job_id,
        "version": 1,
        "scope": "row",
        "code": "invalid_json",
        "rows": 1,
        "row_index": 9,
        "line": 10,
        "field": "prompt",
        "message": "no JSON",
    }


def test_the_example_is_the_first_row_in_the_input(back: StoreUnderTest, store: Store) -> None:
    job = back.add((3,))
    for row_index in (8, 2, 5):
        lease = store.claim_chunk("w", "m")
        assert lease is not None
        tally = ErrorTally("x", 2, row_index, None, f"f{row_index}", f"row {row_index}")
        assert store.commit_chunk(lease, "p", Counts(2, 2), [tally])
    (error,) = back.view("job_errors", job.id)
    assert (error["rows"], error["row_index"]) == (6, 2)
    assert (error["field"], error["message"], error["line"]) == ("f2", "row 2", None)


@pytest.mark.parametrize("at_submit", [3, 7])
def test_a_code_from_both_sources_is_one_row(back: StoreUnderTest, at_submit: int) -> None:
    refused = ErrorTally("x", 1, at_submit, 1, None, "at submit")
    plan = dataclasses.replace(new_plan((1,), rejected=1), rejected_errors=(refused,))
    new = dataclasses.replace(new_job(), plan=plan)
    back.store.insert_job(new)
    lease = back.store.claim_chunk("w", "m")
    assert lease is not None
    tally = ErrorTally("x", 2, 5, 6, None, "in worker")
    back.store.commit_chunk(lease, "p", Counts(2, 2), [tally])
    (error,) = back.view("job_errors", new.id)
    expected = (3, "at submit") if at_submit < 5 else (5, "in worker")
    assert (error["rows"], error["row_index"], error["message"]) == (3, *expected)


def test_a_commit_that_was_lost_tells_no_errors(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,))
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    back.expire_leases()
    store.requeue_expired()
    assert not store.commit_chunk(lease, "p", Counts(3, 1), tallies(1))
    assert errors(back, job.id) == {}


def test_a_commit_that_is_repeated_tells_its_errors_once(back: StoreUnderTest) -> None:
    job = back.add((2,))
    lease = back.store.claim_chunk("w", "m")
    assert lease is not None
    for _ in range(2):
        assert back.store.commit_chunk(lease, "p", Counts(2, 2), tallies(2))
    assert errors(back, job.id) == {"engine_error": 1, "nan_logits": 1}


def test_a_retry_takes_failed_rows_out_and_keeps_refused_ones(
    back: StoreUnderTest, store: Store
) -> None:
    job = back.add((2,), rejected=2)
    while (lease := store.claim_chunk("w", "m")) is not None:
        store.commit_chunk(lease, "p", Counts(2, 2), tallies(2, lease.ordinal * ROWS))
    back.finalize(job.id, Counts(4, 6))
    assert errors(back, job.id) == {"invalid_json": 2, "engine_error": 2, "nan_logits": 2}

    store.reopen(job.id, new_plan((1,)), Counts(failed=4))
    assert errors(back, job.id) == {"invalid_json": 2}
    lease = store.claim_chunk("w", "m")
    assert lease is not None
    store.commit_chunk(lease, "p", Counts(3, 1), tallies(1))
    assert errors(back, job.id) == {"invalid_json": 2, "nan_logits": 1}
    assert {row["version"] for row in back.view("job_errors", job.id)} == {2}


def test_rows_of_a_stopped_job_are_counted_by_its_reason(back: StoreUnderTest) -> None:
    job = back.add((2,))
    back.store.request_cancel(job.id, "expired")
    back.finalize(job.id, Counts(expired=7, failed=1), tallies(1))
    assert errors(back, job.id) == {"expired": 7, "nan_logits": 1}
    cancelled = back.add((1,))
    back.store.request_cancel(cancelled.id)
    back.finalize(cancelled.id, Counts(cancelled=ROWS))
    assert errors(back, cancelled.id) == {"cancelled": ROWS}


def test_a_failed_job_says_why(back: StoreUnderTest) -> None:
    job_id = half_done(back)
    back.store.fail_job(job_id, "output_incomplete", "a row is missing")
    (error,) = (row for row in back.view("job_errors", job_id) if row["scope"] == "job")
    assert (error["code"], error["message"]) == ("output_incomplete", "a row is missing")
    assert {error[name] for name in ("rows", "row_index", "line", "field")} == {None}
    assert errors(back, job_id) == {"invalid_json": 1, "nan_logits": 1}


def test_failed_rows_of_an_older_pagemill_are_counted_without_their_code(
    back: StoreUnderTest,
) -> None:
    job_id = half_done(back)
    with back.database.begin() as connection:
        connection.execute(row_errors.delete())
    assert errors(back, job_id) == {"not_recorded": 2}


def test_a_job_without_errors_has_no_row(back: StoreUnderTest) -> None:
    job = back.add((1,))
    back.complete(job.id)
    assert back.view("job_errors", job.id) == []
