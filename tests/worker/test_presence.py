"""The worker's row in SQL: when it is written, and that no database trouble ends a worker."""

from __future__ import annotations

import pytest

import jobs
from jobs.database import Database, upgrade
from jobs.doctor.database_check import check_database
from jobs.doctor.findings import Level
from jobs.errors import DatabaseError
from jobs.records import WorkerStatus
from jobs.settings import Settings
from jobs.store import Store
from worker import presence
from worker.presence import Presence

pytestmark = pytest.mark.quick

READY = WorkerStatus("ready")
BUSY = WorkerStatus("ready", chunks_held=1)


class Listener:
    """A store that only listens. The table itself is tried in test_runtime, and by the store."""

    lease_seconds = 60.0

    def __init__(self):
        self.known = False
        self.registered = []
        self.reported = []
        self.away = False

    def report_worker(self, worker_id, status):
        if self.away:
            raise DatabaseError("the database is away")
        if self.known:
            self.reported.append(status)
        return self.known

    def register_worker(self, worker_id, model, concurrency, software, status):
        assert not self.known, "its row is there"
        self.known = True
        self.registered.append((worker_id, model, concurrency, software, status))


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(presence, "time", made)
    return made


@pytest.fixture
def store():
    return Listener()


@pytest.fixture
def made(store, clock):
    """A presence, and the status that it will find."""
    status = [WorkerStatus("starting")]
    return Presence(store, "h:1:x", "m", 4, lambda: status[0]), status


def test_it_registers_once_with_its_version(made, store):
    row, _ = made
    row.beat()
    row.beat()
    ((*who, software, status),) = store.registered
    assert who == ["h:1:x", "m", 4]
    assert software == jobs.__version__
    assert status == WorkerStatus("starting")


def test_a_worker_of_our_version_is_none_of_another(tmp_path, clock):
    """`pagemill doctor` compares what a presence writes with what it is itself."""
    settings = Settings.from_env({"PAGEMILL_HOME": str(tmp_path)})
    upgrade(settings.database_url)
    database = Database(settings.database_url)
    Presence(Store(database), "h:1:x", "m", 4, lambda: READY).beat()
    database.close()
    found = [f for f in check_database(settings) if f.name == "workers"]
    assert [(f.level, f.found) for f in found] == [(Level.OK, "1 alive: h:1:x of m (ready)")]


def test_a_busy_worker_reports_with_every_beat(made, store):
    row, status = made
    row.beat()
    status[0] = BUSY
    for _ in range(3):
        row.beat()
    assert store.reported == [BUSY, BUSY, BUSY]


def test_an_idle_worker_reports_now_and_then(made, store, clock):
    row, status = made
    row.beat()
    status[0] = READY
    row.beat()
    for _ in range(12):
        clock.now += 1.0
        row.beat()
    assert store.reported == [READY] * 3


def test_a_short_lease_makes_it_report_more_often(store, clock):
    """It counts as alive only if it was seen within a lease."""
    store.lease_seconds = 3.0
    row = Presence(store, "h:1:x", "m", 4, lambda: READY)
    row.beat()
    for _ in range(9):
        clock.now += 0.5
        row.beat()
    assert len(store.reported) == 4


def test_a_new_state_and_the_end_of_the_last_chunk_are_told_at_once(made, store):
    row, status = made
    row.beat()
    told = [BUSY, READY, WorkerStatus("draining"), WorkerStatus("failed", "why")]
    for status[0] in told:
        row.beat()
    assert store.reported == told


def test_each_step_of_the_start_is_told_at_once(made, store):
    row, status = made
    row.beat()
    told = [WorkerStatus("starting", f"loading weights {n}%") for n in (0, 40, 80)]
    for status[0] in told:
        row.beat()
        row.beat()
    assert store.reported == told


def test_a_row_that_was_pruned_is_made_again(made, store, clock):
    row, _ = made
    row.beat()
    store.known = False
    clock.now += 100.0
    row.beat()
    assert len(store.registered) == 2


def test_while_the_database_is_away_each_beat_fails_and_tries_again(made, store):
    row, _ = made
    row.beat()
    store.away = True
    row._last_at = 0.0
    for _ in range(2):
        with pytest.raises(DatabaseError):
            row.beat()
    store.away = False
    row.beat()
    assert len(store.reported) == 1


def test_a_registration_whose_answer_was_lost_is_not_made_twice(made, store):
    row, _ = made
    store.known = True
    row.beat()
    assert store.registered == []
    assert len(store.reported) == 1


def test_the_last_word_is_said_or_at_least_tried(made, store, caplog):
    row, status = made
    row.beat()
    status[0] = WorkerStatus("stopped")
    row.leave()
    assert store.reported == [WorkerStatus("stopped")]
    store.away = True
    row.leave()
    assert "the database is away" in caplog.text
