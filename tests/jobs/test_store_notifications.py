"""The outbox: what is told goes in with what it tells of, and each attempt is sent by one."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from jobs.errors import NotificationNotFound
from jobs.evaluation_tables import notifications as table
from jobs.housekeeping import keep_house
from jobs.records import Counts
from jobs.records.evaluations import NotificationRecord, NotificationState
from jobs.sqltypes import database_now
from jobs.storage import Storage
from jobs.store import Store, notifications
from tests.support.job_store import ROWS, StoreUnderTest, new_plan

pytestmark = pytest.mark.quick

URLS = ("https://a.example/hook?key=secret", "http://b.example:8080/")


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def ended(back: StoreUnderTest, how: str, urls: tuple[str, ...] = URLS) -> str:
    """A job that ended so."""
    past = datetime.now(UTC) - timedelta(hours=1)
    deadline = past if how == "expired" else None
    job = back.add((1,), notify_urls=urls, deadline_at=deadline)
    match how:
        case "completed":
            back.complete(job.id)
        case "failed":
            back.store.fail_job(job.id, "bad_model", "there is no model")
        case "cancelled" | "expired":
            if how == "cancelled":
                back.store.request_cancel(job.id)
            else:
                assert back.store.expire_overdue() == 1
            back.finalize(job.id, Counts(**{how: ROWS}))
    assert back.store.job(job.id).state == how
    return job.id


def claimed(store: Store, seconds: float = 60, subject: str | None = None) -> NotificationRecord:
    told = store.claim_notification(seconds, subject)
    assert told is not None
    return told


def add(back: StoreUnderTest, subject: str = "eval_1", url: str = URLS[0]) -> None:
    with back.database.begin() as connection:
        notifications.record(connection, subject, "evaluation.completed", url, {"verdict": "x"})


# ---- what is told of a job


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "expired"])
def test_every_end_of_a_job_is_told_to_each_url(
    back: StoreUnderTest, store: Store, how: str
) -> None:
    job_id = ended(back, how)
    told = store.notifications(job_id)
    assert {(n.subject, n.event, n.url) for n in told} == {
        (f"{job_id}:v1", f"job.{how}", url) for url in URLS
    }
    assert {(n.state, n.attempts, n.error) for n in told} == {(NotificationState.PENDING, 0, None)}
    assert len({n.id for n in told}) == 2
    for body in (n.body for n in told):
        assert (body["id"], body["state"], body["version"]) == (job_id, how, 1)
        assert body["rows"]["total"] == ROWS
        assert body["finished_at"] is not None
        assert body["output"] == (None if how == "failed" else f"{job_id}/v1")
        code = body["error"] and body["error"]["code"]
        assert code == ("bad_model" if how == "failed" else None)
        # Secrets of the URLs go to nobody.
        assert "secret" not in json.dumps(body)


def test_nothing_is_told_of_a_job_without_urls(back: StoreUnderTest, store: Store) -> None:
    job_id = ended(back, "completed", urls=())
    assert store.job(job_id).notify_urls == ()
    assert store.notifications() == []


def test_nothing_is_told_before_the_end(back: StoreUnderTest, store: Store) -> None:
    job = back.add((1,), notify_urls=URLS)
    assert store.job(job.id).notify_urls == URLS
    back.finish_work(job.id)
    store.request_cancel(back.add((1,), notify_urls=URLS).id)
    assert store.notifications() == []


def test_an_end_that_is_refused_is_not_told(back: StoreUnderTest, store: Store) -> None:
    job_id = ended(back, "completed")
    assert not store.fail_job(job_id, "late", "too late")
    assert {n.event for n in store.notifications(job_id)} == {"job.completed"}


def test_the_next_version_is_told_again(back: StoreUnderTest, store: Store) -> None:
    job_id = ended(back, "completed", urls=URLS[:1])
    store.reopen(job_id, new_plan((1,)), store.job(job_id).counts)
    assert store.progress(job_id).notifications == []
    store.request_cancel(job_id)
    back.finalize(job_id, Counts(cancelled=ROWS))
    assert [(n.subject, n.event) for n in store.notifications(job_id)] == [
        (f"{job_id}:v2", "job.cancelled"),
        (f"{job_id}:v1", "job.completed"),
    ]
    (told,) = store.progress(job_id).notifications
    assert (told.subject, told.body["output"]) == (f"{job_id}:v2", f"{job_id}/v2")


def test_the_end_of_a_job_that_is_deleted_is_told_all_the_same(
    back: StoreUnderTest, store: Store
) -> None:
    job_id = ended(back, "completed", urls=URLS[:1])
    store.delete_job(job_id)
    assert claimed(store).body["id"] == job_id
    assert len(store.notifications(job_id)) == 1


def test_progress_has_what_became_of_it_in_the_order_of_the_urls(
    back: StoreUnderTest, store: Store
) -> None:
    job_id = ended(back, "completed", urls=(*URLS[::-1], "https://c.example/"))
    told = store.progress(job_id).notifications
    assert [n.url for n in told] == [*URLS[::-1], "https://c.example/"]


# ---- what else is told


def test_the_same_is_told_once(back: StoreUnderTest, store: Store) -> None:
    add(back)
    (first,) = store.notifications()
    add(back)
    assert store.notifications() == [first]


def test_what_is_rolled_back_is_not_told(back: StoreUnderTest, store: Store) -> None:
    with back.database.engine.begin() as connection:
        notifications.record(connection, "eval_1", "evaluation.failed", URLS[0], {})
        connection.rollback()
    assert store.notifications() == []


def test_they_are_listed_by_what_they_are_about(back: StoreUnderTest, store: Store) -> None:
    job_id = ended(back, "completed", urls=URLS[:1])
    add(back, "eval_1")
    add(back, "eval_12")
    subjects = [n.subject for n in store.notifications()]
    assert sorted(subjects) == ["eval_1", "eval_12", f"{job_id}:v1"]  # within a millisecond
    assert [n.subject for n in store.notifications("eval_1")] == ["eval_1"]
    assert len(store.notifications(limit=1)) == 1
    store.notification_not_delivered(claimed(store, subject="eval_1"), "no", None)
    assert [n.subject for n in store.notifications(failed=True)] == ["eval_1"]


# ---- sending


def test_an_attempt_is_claimed_once(back: StoreUnderTest, store: Store) -> None:
    add(back)
    first = claimed(store)
    assert first.attempts == 1
    assert store.claim_notification(60) is None
    # Nobody heard of it again: whoever sent it was killed.
    back.let_notifications_be_due()
    second = claimed(store)
    assert (second.id, second.attempts) == (first.id, 2)


def test_the_one_that_is_due_first_is_first(back: StoreUnderTest, store: Store) -> None:
    for number in (1, 2):
        add(back, f"eval_{number}")
    first = claimed(store)  # either: they came within a millisecond
    store.notification_not_delivered(first, "no", 3600.0)
    assert {first.subject, claimed(store).subject} == {"eval_1", "eval_2"}
    assert store.claim_notification(60) is None


def test_many_at_once_send_each_attempt_once(back: StoreUnderTest, store: Store) -> None:
    subjects = {f"eval_{number}" for number in range(12)}
    for subject in sorted(subjects):
        add(back, subject)
    claims: list[tuple[str, int]] = []
    barrier = threading.Barrier(4)

    def send() -> None:
        barrier.wait(30)
        while (told := store.claim_notification(60)) is not None:
            claims.append((told.subject, told.attempts))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(claims) == sorted((subject, 1) for subject in subjects)


def test_only_what_is_told_of_a_subject(back: StoreUnderTest, store: Store) -> None:
    add(back, "eval_1")
    add(back, "eval_2")
    assert claimed(store, subject="eval_2").subject == "eval_2"
    assert store.claim_notification(60, "eval_2") is None


def test_what_is_delivered_is_not_sent_again(back: StoreUnderTest, store: Store) -> None:
    add(back)
    told = claimed(store)
    store.notification_delivered(told.id)
    back.let_notifications_be_due()
    assert store.claim_notification(60) is None
    (seen,) = store.notifications()
    assert (seen.state, seen.attempts, seen.error) == (NotificationState.DELIVERED, 1, None)
    assert seen.delivered_at is not None
    # A second answer, of an attempt that was given up for dead.
    assert not store.notification_not_delivered(told, "late", None)
    store.notification_delivered(told.id)
    assert store.notifications() == [seen]


def test_what_fails_is_due_later_and_says_why(back: StoreUnderTest, store: Store) -> None:
    add(back)
    told = claimed(store)
    assert store.notification_not_delivered(told, "HTTP 500", 120.0)
    (seen,) = store.notifications()
    assert (seen.state, seen.error) == (NotificationState.PENDING, "HTTP 500")
    assert timedelta(seconds=100) < seen.next_at - store.now() <= timedelta(seconds=120)


def test_what_is_given_up_is_sent_no_more(back: StoreUnderTest, store: Store) -> None:
    add(back)
    assert store.notification_not_delivered(claimed(store), "HTTP 410", None)
    back.let_notifications_be_due()
    assert store.claim_notification(60) is None
    (seen,) = store.notifications()
    assert (seen.state, seen.error) == (NotificationState.FAILED, "HTTP 410")


def test_an_answer_that_comes_too_late_changes_nothing(back: StoreUnderTest, store: Store) -> None:
    add(back)
    slow = claimed(store)
    back.let_notifications_be_due()
    claimed(store)
    assert not store.notification_not_delivered(slow, "timeout", None)
    (seen,) = store.notifications()
    assert (seen.state, seen.attempts, seen.error) == (NotificationState.PENDING, 2, None)
    # But that it was taken is true, whoever brought it.
    store.notification_delivered(slow.id)
    assert store.notifications()[0].state is NotificationState.DELIVERED


@pytest.mark.parametrize("taken", [True, False])
def test_it_can_be_sent_again(back: StoreUnderTest, store: Store, taken: bool) -> None:
    add(back)
    told = claimed(store)
    if taken:
        store.notification_delivered(told.id)
    else:
        store.notification_not_delivered(told, "HTTP 410", None)
    again = store.send_again(told.id)
    assert (again.state, again.attempts, again.error) == (NotificationState.PENDING, 0, None)
    assert again.delivered_at is None
    assert claimed(store).id == told.id


def test_what_is_not_there_cannot_be_sent_again(store: Store) -> None:
    with pytest.raises(NotificationNotFound, match="pagemill notifications"):
        store.send_again("dlv_nothing")


def test_those_dealt_with_long_ago_are_forgotten(
    back: StoreUnderTest, store: Store, tmp_path: Path
) -> None:
    for number in range(4):
        add(back, f"eval_{number}")
    store.notification_delivered(claimed(store, subject="eval_0").id)
    store.notification_not_delivered(claimed(store, subject="eval_1"), "no", None)
    store.notification_delivered(claimed(store, subject="eval_2").id)
    with back.database.begin() as connection:
        connection.execute(
            update(table)
            .where(table.c.subject != "eval_2")
            .values(next_at=database_now(-notifications.KEPT_SECONDS - 1))
        )
    keep_house(store, Storage(str(tmp_path)), None)
    assert {n.subject for n in store.notifications()} == {"eval_2", "eval_3"}
