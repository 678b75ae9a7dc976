"""Workers write down that they live, and how they are."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from jobs.records import WorkerRecord, WorkerStatus
from jobs.sqltypes import database_now
from jobs.store import Store
from jobs.store.workers import KEPT_SECONDS
from jobs.tables import WORKER_STATES, workers
from jobs.workers import host_and_pid, worker_id
from tests.support.job_store import StoreUnderTest

pytestmark = pytest.mark.quick

STARTING = WorkerStatus("starting")
READY = WorkerStatus(
    state="ready",
    device="cuda:0",
    dtype="bfloat16",
    chunks_held=3,
    rows_completed=2**40,
    rows_failed=4,
    running=5,
    waiting=6,
    blocks_used=7,
    blocks_cached=8,
    blocks_total=9,
    prompt_tokens=2**41,
    cached_tokens=2**42,
    generated_tokens=2**43,
    preemptions=10,
    tokens_per_second=1234.5,
)


@pytest.fixture
def store(back: StoreUnderTest) -> Store:
    return back.store


def start(store: Store, id: str = "host:12:ab", model: str = "m") -> str:
    store.register_worker(id, model, 4, "0.1.0", STARTING)
    return id


def set_worker(back: StoreUnderTest, id: str, **values: Any) -> None:
    with back.database.begin() as connection:
        connection.execute(update(workers).where(workers.c.id == id).values(**values))


def ids(store: Store, *, all: bool = False) -> list[str]:
    return [worker.id for worker in store.workers(all=all)]


def test_a_worker_is_read_as_it_registered(store: Store) -> None:
    start(store, "gpu-7.example:4711:0f")
    (worker,) = store.workers()
    assert worker == WorkerRecord(
        id="gpu-7.example:4711:0f",
        host="gpu-7.example",
        pid=4711,
        model="m",
        software="0.1.0",
        concurrency=4,
        status=STARTING,
        started_at=worker.started_at,
        seen_at=worker.started_at,
        alive=True,
    )
    assert abs(datetime.now(UTC) - worker.started_at) < timedelta(seconds=60)


def test_a_report_replaces_all_that_was_said(back: StoreUnderTest, store: Store) -> None:
    id = start(store)
    set_worker(back, id, started_at=database_now(-100.0), seen_at=database_now(-50.0))
    assert store.report_worker(id, READY)
    (worker,) = store.workers()
    assert worker.status == READY
    assert timedelta(seconds=95) < worker.seen_at - worker.started_at < timedelta(seconds=160)
    failed = WorkerStatus("failed", "no \0 memory")
    assert store.report_worker(id, failed)
    (worker,) = store.workers(all=True)
    assert worker.status == dataclasses.replace(failed, message=r"no \x00 memory")


def test_a_report_of_nobody_writes_nothing(store: Store) -> None:
    assert not store.report_worker("host:12:ab", READY)
    assert store.workers(all=True) == []


@pytest.mark.parametrize("state", WORKER_STATES)
def test_a_worker_that_left_is_not_alive(store: Store, state: str) -> None:
    id = start(store)
    assert store.report_worker(id, WorkerStatus(state))
    alive = state not in ("failed", "stopped")
    assert ids(store) == [id] * alive
    (worker,) = store.workers(all=True)
    assert (worker.status.state, worker.alive) == (state, alive)


def test_a_silent_worker_is_lost_after_a_lease(back: StoreUnderTest) -> None:
    id = start(back.store)
    patient, impatient = (Store(back.database, lease_seconds=s) for s in (60, 30))
    set_worker(back, id, seen_at=database_now(-45.0))
    assert [w.alive for w in patient.workers()] == [True]
    assert impatient.workers() == []
    assert [w.alive for w in impatient.workers(all=True)] == [False]
    back.store.report_worker(id, READY)
    assert ids(impatient) == [id]


def test_what_a_start_is_at_is_told_as_long_as_no_worker_is_ready(
    back: StoreUnderTest, store: Store
) -> None:
    job = back.add((1,))
    assert store.progress(job.id).starting is None
    first, second = start(store, "host:1:a"), start(store, "host:2:a")
    for id, step in ((first, "loading weights 60%"), (second, "loading torch")):
        store.report_worker(id, WorkerStatus("starting", step))
    set_worker(back, first, started_at=database_now(-10.0))
    progress = store.progress(job.id)
    assert (progress.workers_alive, progress.starting) == (2, "loading weights 60%")
    store.report_worker(second, READY)
    assert store.progress(job.id).starting is None
    set_worker(back, second, model="another")
    assert store.progress(job.id).starting == "loading weights 60%"
    assert store.claim_chunk(first, "m")  # it is ready, and says so with its next heartbeat
    assert store.progress(job.id).starting is None


def test_the_oldest_comes_first(back: StoreUnderTest, store: Store) -> None:
    for n, age in enumerate((10.0, 30.0, 20.0)):
        set_worker(back, start(store, f"host:{n}:a"), started_at=database_now(-age))
    assert ids(store) == ["host:1:a", "host:2:a", "host:0:a"]


def test_workers_are_forgotten_after_a_week(back: StoreUnderTest, store: Store) -> None:
    old, new, gone = (start(store, f"host:{n}:a") for n in range(3))
    set_worker(back, old, seen_at=database_now(-KEPT_SECONDS - 10))
    set_worker(back, gone, seen_at=database_now(-KEPT_SECONDS + 10), state="stopped")
    assert store.prune_workers() == 1
    assert store.prune_workers() == 0
    assert set(ids(store, all=True)) == {new, gone}


def test_registering_again_changes_nothing(store: Store) -> None:
    """The answer of a first, successful call may be lost together with the connection."""
    id = start(store)
    store.report_worker(id, READY)
    before = store.workers()
    start(store)
    assert store.workers() == before


def test_a_state_that_no_worker_has(store: Store) -> None:
    start(store)
    with pytest.raises(ValueError, match="state is 'bored'; it must be one of starting, ready"):
        store.report_worker("host:12:ab", WorkerStatus("bored"))


@pytest.mark.parametrize("id", ["w", "host:12", ":12:ab", "host:x:ab", "host::ab"])
def test_an_id_of_another_shape_is_refused(store: Store, id: str) -> None:
    with pytest.raises(ValueError, match="is not `host:pid:random`"):
        start(store, id)
    assert store.workers(all=True) == []


def test_every_id_names_host_and_process() -> None:
    host, pid = host_and_pid(worker_id())
    assert worker_id().startswith(f"{host}:{pid}:")
    assert host_and_pid("fe80::1:7:ab") == ("fe80::1", 7)


# ---- what a watcher of a job hears of them


def test_progress_counts_the_living_workers_of_the_model(
    back: StoreUnderTest, store: Store
) -> None:
    job = back.add((1,), model="m")
    assert store.progress(job.id).workers_alive == 0
    for n, model in enumerate(("m", "m", "m", "other")):
        start(store, f"host:{n}:a", model)
    store.report_worker("host:0:a", WorkerStatus("stopped"))
    set_worker(back, "host:1:a", seen_at=database_now(-61.0))
    assert store.progress(job.id).workers_alive == 1
