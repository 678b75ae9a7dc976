"""What is due is sent to a real receiver, on both databases: once, or again until it is taken."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from jobs.notifications import attempts
from jobs.notifications.attempts import FIRST_WAIT, LONGEST_WAIT, MAX_ATTEMPTS, wait_after
from jobs.notifications.delivering import Deliverer
from jobs.notifications.post import Answer, post
from jobs.records.evaluations import NotificationRecord, NotificationState
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import notifications
from tests.support.job_store import ROWS, StoreUnderTest
from tests.support.receiver import Receiver, closed_port, receiving

SECRET = "a secret of some length".replace(" ", "-")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def deliverer(back: StoreUnderTest, tmp_path: Path) -> Deliverer:
    return make(back, tmp_path)


def make(back: StoreUnderTest, tmp_path: Path, **settings: object) -> Deliverer:
    made = dataclasses.replace(Settings.from_env({}), **settings)  # type: ignore[arg-type]
    return Deliverer(made, back.store, Storage(str(tmp_path)))


def completed(back: StoreUnderTest, *urls: str) -> str:
    job = back.add((1,), notify_urls=urls)
    back.complete(job.id)
    return job.id


def told(back: StoreUnderTest) -> NotificationRecord:
    (found,) = back.store.notifications()
    return found


def wait_of(back: StoreUnderTest) -> float:
    return (told(back).next_at - back.store.now()).total_seconds()


# ---- what arrives


def test_a_job_that_ended_is_told_once(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver, tmp_path: Path
) -> None:
    job_id = completed(back, receiver.url)
    for _ in range(2):
        deliverer.deliver_due()
        back.let_notifications_be_due()
    (request,) = receiver.requests
    seen = told(back)
    assert (seen.state, seen.attempts) == (NotificationState.DELIVERED, 1)
    assert (deliverer.delivered, deliverer.failures, deliverer.given_up) == (1, 0, 0)

    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"].startswith("pagemill/")
    assert request.headers["Pagemill-Event"] == "job.completed"
    assert request.headers["Pagemill-Delivery"] == seen.id
    assert "Pagemill-Signature" not in request.headers
    message = request.json
    data = message.pop("data")
    assert message == {
        "version": 1,
        "id": seen.id,
        "event": "job.completed",
        "subject": f"{job_id}:v1",
        "created_at": seen.created_at.isoformat(),
    }
    assert (data["id"], data["state"]) == (job_id, "completed")
    assert data["rows"]["completed"] == ROWS
    assert data["output"] == str(tmp_path / job_id / "v1")


def test_it_is_signed_with_each_secret(
    back: StoreUnderTest, receiver: Receiver, tmp_path: Path
) -> None:
    other = "another-secret-to-come"
    completed(back, receiver.url)
    make(back, tmp_path, webhook_secret=f"{SECRET} {other}").deliver_due()
    (request,) = receiver.requests
    time, *signatures = request.headers["Pagemill-Signature"].split(",")
    at = time.removeprefix("t=")
    assert abs(int(at) - datetime.now(UTC).timestamp()) < 60
    signed = f"{at}.".encode() + request.body
    assert signatures == [
        "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        for secret in (SECRET, other)
    ]


def test_what_evaluations_tell_arrives_as_it_is(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver
) -> None:
    with back.database.begin() as connection:
        body = {"verdict": "passed", "name": "\ud800é"}
        notifications.record(connection, "eval_1", "evaluation.completed", receiver.url, body)
    deliverer.deliver_due()
    (request,) = receiver.requests
    assert (request.json["subject"], request.json["data"]) == ("eval_1", body)


# ---- what is tried again


@pytest.mark.parametrize("status", [500, 503, 408, 404, 401, 302])
def test_an_answer_that_may_pass_is_tried_again(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver, status: int
) -> None:
    receiver.answers = [status, status]
    completed(back, receiver.url)
    deliverer.deliver_due()
    seen = told(back)
    assert (seen.state, seen.attempts) == (NotificationState.PENDING, 1)
    assert (seen.error or "").startswith(f"HTTP {status}")
    assert 0 < wait_of(back) <= 1.25 * FIRST_WAIT

    deliverer.deliver_due()  # it is not due yet
    assert len(receiver.requests) == 1
    back.let_notifications_be_due()
    deliverer.deliver_due()
    assert wait_of(back) <= 1.25 * 2 * FIRST_WAIT
    back.let_notifications_be_due()
    deliverer.deliver_due()
    seen = told(back)
    assert (seen.state, seen.attempts, seen.error) == (NotificationState.DELIVERED, 3, None)
    # The same message each time, under the same id.
    assert len({request.body for request in receiver.requests}) == 1
    assert {request.headers["Pagemill-Delivery"] for request in receiver.requests} == {seen.id}
    assert (deliverer.delivered, deliverer.failures, deliverer.given_up) == (1, 2, 0)


def test_nobody_listens(back: StoreUnderTest, deliverer: Deliverer) -> None:
    with closed_port() as url:
        completed(back, url)
        deliverer.deliver_due()
    seen = told(back)
    assert (seen.state, seen.error) == (NotificationState.PENDING, "connection refused")


def test_a_receiver_that_hangs(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    receiver.before_answer = lambda: over.wait(60)
    monkeypatch.setattr("jobs.notifications.delivering.POST_SECONDS", 0.1)
    completed(back, receiver.url)
    try:
        deliverer.deliver_due()
    finally:
        over.set()
    seen = told(back)
    assert (seen.state, seen.error) == (NotificationState.PENDING, "no answer within 0.1 s")


def test_one_that_fails_keeps_no_other_waiting(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver
) -> None:
    with closed_port() as url:
        completed(back, url, receiver.url)
        deliverer.deliver_due()
    assert len(receiver.requests) == 1
    assert {n.state for n in back.store.notifications()} == {
        NotificationState.PENDING,
        NotificationState.DELIVERED,
    }


def test_it_waits_as_long_as_it_is_asked_to(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver
) -> None:
    receiver.answers = [429]
    receiver.headers = {"Retry-After": "600"}
    completed(back, receiver.url)
    deliverer.deliver_due()
    assert 590 < wait_of(back) <= 600


# ---- what is given up


def test_what_is_gone_is_told_no_more(
    back: StoreUnderTest,
    deliverer: Deliverer,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver.answers = [410]
    completed(back, f"{receiver.url}?key=topsecret")
    with caplog.at_level(logging.DEBUG, logger="pagemill"):
        deliverer.deliver_due()
    seen = told(back)
    assert (seen.state, seen.attempts) == (NotificationState.FAILED, 1)
    assert (seen.error or "").startswith("HTTP 410")
    assert deliverer.given_up == 1
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert seen.id in record.getMessage()
    assert f"http://localhost:{receiver.port}/***" in record.getMessage()
    assert "topsecret" not in caplog.text


def test_the_last_attempt(back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver) -> None:
    receiver.answers = [500] * MAX_ATTEMPTS
    completed(back, receiver.url)
    for _ in range(MAX_ATTEMPTS + 1):
        deliverer.deliver_due()
        back.let_notifications_be_due()
    seen = told(back)
    assert (seen.state, seen.attempts, seen.error) == (
        NotificationState.FAILED,
        MAX_ATTEMPTS,
        "HTTP 500",
    )
    assert len(receiver.requests) == MAX_ATTEMPTS

    again = back.store.send_again(seen.id)
    deliverer.deliver_due(again.subject)
    assert told(back).state is NotificationState.DELIVERED
    assert receiver.requests[-1].headers["Pagemill-Delivery"] == seen.id


def test_a_message_that_ends_its_senders_is_given_up(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver
) -> None:
    completed(back, receiver.url)
    for _ in range(MAX_ATTEMPTS):
        assert back.store.claim_notification(60) is not None
        back.let_notifications_be_due()
    deliverer.deliver_due()
    seen = told(back)
    assert (seen.state, receiver.requests) == (NotificationState.FAILED, [])
    assert "its senders ended" in (seen.error or "")


def test_a_host_that_may_not_be_told_is_not(
    back: StoreUnderTest, receiver: Receiver, tmp_path: Path
) -> None:
    """Whoever submitted the job may not have known of the setting."""
    completed(back, receiver.url)
    make(back, tmp_path, webhook_hosts=("hooks.example.com",)).deliver_due()
    seen = told(back)
    assert (seen.state, receiver.requests) == (NotificationState.FAILED, [])
    assert "PAGEMILL_WEBHOOK_HOSTS" in (seen.error or "")


# ---- several senders, and those that die


class Killed(BaseException):
    """As if the process had been."""


def test_a_sender_that_dies_before_it_heard_sends_again_under_the_same_id(
    back: StoreUnderTest, receiver: Receiver, tmp_path: Path, deliverer: Deliverer
) -> None:
    def post_and_die(*arguments: object) -> Answer:
        post(*arguments)  # type: ignore[arg-type]
        raise Killed

    dying = Deliverer(Settings.from_env({}), back.store, Storage(str(tmp_path)), post_and_die)
    completed(back, receiver.url)
    with pytest.raises(Killed):
        dying.deliver_due()
    assert told(back).state is NotificationState.PENDING
    deliverer.deliver_due()  # not at once: the other may be slow, and not dead
    assert len(receiver.requests) == 1

    back.let_notifications_be_due()
    deliverer.deliver_due()
    first, second = receiver.requests
    assert first.headers["Pagemill-Delivery"] == second.headers["Pagemill-Delivery"]
    assert first.body == second.body
    assert told(back).state is NotificationState.DELIVERED


def test_two_senders_at_once_send_it_once(
    back: StoreUnderTest, receiver: Receiver, tmp_path: Path
) -> None:
    """Another looks while the first waits for the answer."""
    second = make(back, tmp_path)
    receiver.before_answer = second.deliver_due
    completed(back, receiver.url)
    make(back, tmp_path).deliver_due()
    assert len(receiver.requests) == 1
    assert second.delivered == 0


def test_many_senders_send_many_once(
    back: StoreUnderTest, receiver: Receiver, tmp_path: Path
) -> None:
    jobs = {completed(back, receiver.url) for _ in range(12)}
    threads = [threading.Thread(target=make(back, tmp_path).deliver_due) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(request.json["data"]["id"] for request in receiver.requests) == sorted(jobs)
    assert {n.state for n in back.store.notifications()} == {NotificationState.DELIVERED}


def test_one_that_leaves_begins_no_more(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver
) -> None:
    completed(back, receiver.url)
    deliverer.leave()
    deliverer.deliver_due()
    assert receiver.requests == []
    assert told(back).attempts == 0


def test_only_what_is_told_of_one_subject(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver
) -> None:
    completed(back, receiver.url)
    wanted = completed(back, receiver.url)
    deliverer.deliver_due(f"{wanted}:v1")
    assert [request.json["data"]["id"] for request in receiver.requests] == [wanted]


# ---- waiting


def test_the_waits_grow_and_are_about_a_day() -> None:
    waits = [wait_after(number) for number in range(1, MAX_ATTEMPTS + 1)]
    assert waits.pop() is None
    known = [wait for wait in waits if wait is not None]
    assert len(known) == MAX_ATTEMPTS - 1
    assert all(wait <= 1.25 * LONGEST_WAIT for wait in known)
    assert known[0] <= 1.25 * FIRST_WAIT < known[5]
    assert 0.75 * 20 * 3600 < sum(known) < 1.25 * 28 * 3600


def test_those_that_failed_together_are_not_tried_together() -> None:
    assert len({wait_after(3) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None), ("", None), ("soon", None), ("-5", None), ("1.5", None), ("²", None),
        ("0", 0.0), (" 120 ", 120.0), ("9" * 500, 999_999_999.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 99 Oct 2015", None),
    ],
)  # fmt: skip
def test_what_retry_after_means(header: str | None, seconds: float | None) -> None:
    assert attempts.seconds_of(header) == seconds


def test_a_date_to_retry_after() -> None:
    header = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    assert 290 < (attempts.seconds_of(header) or 0) <= 300


def test_nobody_makes_us_wait_for_ever() -> None:
    assert wait_after(1, 1e9) == LONGEST_WAIT
    assert (wait_after(1, 0.0) or 0) > 0


def test_the_message_is_json_that_any_receiver_reads(
    back: StoreUnderTest, deliverer: Deliverer, receiver: Receiver
) -> None:
    completed(back, receiver.url)
    deliverer.deliver_due()
    assert receiver.requests[0].body.isascii()
    assert json.loads(receiver.requests[0].body)["data"]["seed"] == 2**63 - 1
