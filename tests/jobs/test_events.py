"""Who did what to a job, and when: written with what it tells of, or not at all."""

from __future__ import annotations

import getpass
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs import actor
from jobs.beat import Beat
from jobs.errors import JobNotFound, StateConflict
from jobs.leaving import Leaving
from jobs.records import Counts
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store, events
from tests.support.command_line import CommandLine
from tests.support.job_store import ROWS, StoreUnderTest, new_plan

pytestmark = pytest.mark.quick

HERE = f"{getpass.getuser()}@{socket.gethostname()}"


def told(store: Store, job_id: str) -> list[tuple[str, str | None]]:
    return [(event.event, event.detail) for event in store.events(job_id)]


def test_the_life_of_a_job(back: StoreUnderTest) -> None:
    store, worker = back.store, back.store.acting_as("host:1:a")
    job = back.add((2,), rejected=1)
    lease = worker.claim_chunk("host:1:a", "m")
    assert lease is not None
    store.pause(job.id)
    store.pause(job.id)  # nothing happens
    worker.release_chunk(lease, Counts())
    store.resume(job.id)
    while (lease := worker.claim_chunk("host:1:a", "m")) is not None:
        worker.commit_chunk(lease, "p", Counts(completed=ROWS - 1, failed=1))
    back.finalize(job.id, Counts(completed=2 * (ROWS - 1), failed=3))
    store.reopen(job.id, new_plan((1,)), Counts(failed=2))
    store.request_cancel(job.id)
    store.request_cancel(job.id)
    back.finalize(job.id, Counts(completed=2 * (ROWS - 1), failed=1, cancelled=2))

    found = store.events(job.id)
    assert [(event.event, event.detail) for event in found] == [
        ("submitted", "rows: 9 (1 refused)"),
        ("started", "version 1"),
        ("paused", None),
        ("resumed", None),
        ("finalizing", None),
        ("completed", "version 1, answered: 6 of 9"),
        ("retried", "version 2, rows: 4"),
        ("cancel_requested", None),
        ("finalizing", None),
        ("cancelled", "version 2, answered: 6 of 9"),
    ]
    by_worker = {event.event for event in found if event.actor == "host:1:a"}
    assert by_worker == {"started", "finalizing"}
    assert {event.actor for event in found} == {"host:1:a", HERE}
    assert all(event.job_id == job.id for event in found)
    assert all(abs((datetime.now(UTC) - event.at).total_seconds()) < 60 for event in found)
    assert [event.id for event in found] == sorted(event.id for event in found)


def test_a_deadline_and_a_failure(back: StoreUnderTest) -> None:
    late, broken = back.add((1,)), back.add((1,))
    back.set_job(late.id, deadline_at=datetime(2020, 1, 1, tzinfo=UTC))
    back.store.expire_overdue()
    assert told(back.store, late.id)[1:] == [("deadline_passed", None), ("finalizing", None)]
    assert back.store.fail_job(broken.id, "files_damaged", "x" * 9999)
    ((event, detail),) = told(back.store, broken.id)[1:]
    assert event == "failed"
    assert detail is not None
    assert detail.startswith("files_damaged: xxx")
    assert (len(detail), detail[-1]) == (events.MAX_DETAIL, "…")


def test_lost_chunks_are_summarised(back: StoreUnderTest) -> None:
    job = back.add((3,))
    for held in (3, 2):
        for _ in range(held):
            assert back.store.claim_chunk("w", "m") is not None
        back.expire_leases()
        assert back.store.requeue_expired() == held
    assert told(back.store, job.id)[1:] == [("started", "version 1"), ("requeued", "5")]
    back.store.pause(job.id)
    back.store.resume(job.id)
    assert back.store.claim_chunk("host:1:a", "m") is not None
    assert back.store.requeue_owned("host:1:") == 1
    assert told(back.store, job.id)[-1] == ("requeued", "1")


def test_what_is_refused_is_not_told(back: StoreUnderTest) -> None:
    job = back.add((1,))
    back.complete(job.id)
    before = back.store.events(job.id)
    for refused in (back.store.pause, back.store.resume, back.store.request_cancel):
        with pytest.raises(StateConflict):
            refused(job.id)
    assert not back.store.fail_job(job.id, "code", "message")
    assert back.store.events(job.id) == before


def test_a_job_keeps_its_newest_events(
    back: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEPT", 5)
    job, other = back.add((1,)), back.add((1,))
    for _ in range(4):
        back.store.pause(job.id)
        back.store.resume(job.id)
    assert [name for name, _ in told(back.store, job.id)] == [
        "resumed", "paused", "resumed", "paused", "resumed",
    ]  # fmt: skip
    assert [name for name, _ in told(back.store, other.id)] == ["submitted"]


def test_the_start_of_an_id_is_enough_while_the_job_is_there(back: StoreUnderTest) -> None:
    job = back.add((1,), id="job_abcdefgh1234")
    assert back.store.events("job_abcdefgh") == back.store.events(job.id)
    with pytest.raises(JobNotFound):
        back.store.events("job_zzzzzzzz")


def test_a_beat_acts_in_its_own_name(store: Store, tmp_path: Path) -> None:
    back = StoreUnderTest(store._database)
    job = back.add((1,), deadline_at=datetime(2020, 1, 1, tzinfo=UTC))
    Beat(Settings.from_env({}), store, Storage(str(tmp_path)), Leaving()).tend()
    passed = store.events(job.id)[1]
    assert passed.event == "deadline_passed"
    assert re.fullmatch(r"beat:.+:\d+", passed.actor)


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert re.fullmatch(r"uid-\d+@.+", actor.this_actor())


# ---- the command


def test_the_command_tells_it_to_people_and_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine(tmp_path / "home", monkeypatch)
    job_id = cli.submit({"prompt": "a"})
    cli("cancel", job_id)
    found = cli.json("events", job_id)
    names = ["submitted", "cancel_requested", "finalizing", "cancelled"]
    assert [event["event"] for event in found] == names
    assert {event["actor"] for event in found} == {HERE}
    assert found[0].keys() == {"id", "job_id", "at", "actor", "event", "detail"}
    assert datetime.fromisoformat(found[0]["at"]).tzinfo is not None
    out, _ = cli("events", job_id)
    assert [line.split()[2] for line in out.splitlines()[1:]] == names
    assert "rows: 1" in out
    cli("events", "job_zzzzzzzzzzzz", expect=66)
