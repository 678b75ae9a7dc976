"""How fast a model was measured, from what is recorded of jobs and workers."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from jobs.kinds import JobKind
from jobs.records import Counts, WorkerStatus
from jobs.speeds import MeasuredSpeed, last_measured
from jobs.tables import events
from tests.support.job_store import ROWS, StoreUnderTest

MODEL, WORKER = "m", "gpu-7:4711:0f"
READY = WorkerStatus("ready", device="cuda:0", dtype="bfloat16")
BEGAN = datetime(2030, 1, 31, 8, tzinfo=UTC)
COUNTS = Counts(
    completed=ROWS, prompt_tokens=1000, cached_tokens=400, completion_tokens=3000
)  # fmt: skip


def ended(back: StoreUnderTest, *, minutes: int, seconds: float = 60, **values: Any) -> str:
    """A job that ended so many minutes after `BEGAN`, and what it took."""
    job = back.add((1,))
    back.finish_work(job.id)
    back.finalize(job.id, COUNTS)
    finished = BEGAN + timedelta(minutes=minutes)
    began = finished - timedelta(seconds=seconds)
    back.set_job(job.id, **{"started_at": began, "finished_at": finished, **values})
    with back.database.begin() as connection:
        connection.execute(update(events).where(events.c.job_id == job.id).values(actor=WORKER))
    return job.id


def measured(back: StoreUnderTest, kind: JobKind = JobKind.GENERATE) -> MeasuredSpeed | None:
    return last_measured(back.store, MODEL, kind)


@pytest.mark.quick
def test_the_newest_job_that_ended_well_tells(back: StoreUnderTest) -> None:
    assert measured(back) is None
    ended(back, minutes=1)
    newest = ended(back, minutes=9)
    ended(back, minutes=3)
    ended(back, minutes=20, model="another")
    ended(back, minutes=21, version=2)
    ended(back, minutes=22, state="cancelled")
    ended(back, minutes=23, options={"kind": "embed", "pooling": "last", "normalize": True})
    ended(back, minutes=24, completion_tokens=0, prompt_tokens=0, cached_tokens=0)

    found = measured(back)

    assert found is not None
    assert (found.source, found.id, found.at) == ("job", newest, BEGAN + timedelta(minutes=9))
    assert (found.seconds, found.computed_tokens, found.completion_tokens) == (60, 600, 3000)
    assert found.tokens_per_second == 50
    assert found.worker == WORKER
    assert found.device is None  # a worker that nobody knows any more
    other = measured(back, JobKind.EMBED)
    assert other is not None
    assert other.at == BEGAN + timedelta(minutes=23)
    assert measured(back, JobKind.SCORE) is None


@pytest.mark.quick
def test_the_worker_that_began_it_is_named_with_its_device(back: StoreUnderTest) -> None:
    ended(back, minutes=1)
    back.store.register_worker(WORKER, MODEL, 4, "0.1.0", READY)

    found = measured(back)

    assert found is not None
    assert (found.worker, found.device, found.dtype) == (WORKER, "cuda:0", "bfloat16")


@pytest.mark.quick
def test_without_a_job_a_worker_that_said_something(back: StoreUnderTest) -> None:
    for number, (speed, model) in enumerate([(0.0, MODEL), (12.5, MODEL), (99.0, "another")]):
        status = dataclasses.replace(READY, tokens_per_second=speed)
        back.store.register_worker(f"host:{number}:ab", model, 4, "0.1.0", status)

    found = measured(back)

    assert found is not None
    assert (found.source, found.id, found.tokens_per_second) == ("worker", "host:1:ab", 12.5)
    assert found.time_for(10**9, 125) == 10  # of the answers alone
    assert found.time_for(10**9, 0) is None
    assert measured(back, JobKind.SCORE) is None


@pytest.mark.quick
def test_time_is_bounded_by_whatever_there_is_more_of() -> None:
    speed = MeasuredSpeed(
        "job", "j", BEGAN, 50, seconds=60, computed_tokens=600, completion_tokens=3000
    )
    assert speed.time_for(600, 3000) == 60
    assert speed.time_for(1200, 3000) == 120
    assert speed.time_for(600, 9000) == 180
    assert speed.time_for(60, 30) == 6
    alone = dataclasses.replace(speed, completion_tokens=0)
    assert alone.time_for(1200, 0) == 120
    assert alone.time_for(1200, 1) is None  # nothing is known of answers
