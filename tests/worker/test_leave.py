"""When a worker goes."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from jobs.states import JobState
from tests.support.deployment import wait_for
from worker import leave as leave_module
from worker.leave import Leave


class Stayer:
    """A worker that only remembers what it was told; the real one is tried end to end."""

    def __init__(self, **options):
        settings = SimpleNamespace(lease_seconds=60.0)
        defaults = {"exit_when_done": None, "watch_parent": False, "settings": settings}
        self.options = SimpleNamespace(**{**defaults, **options})
        self.failure = None
        self.held = 3
        self.draining = threading.Event()
        self.handed_back = 0
        self.store = self
        self.state = JobState.IN_PROGRESS
        self.asked = 0
        self.database = threading.Event()  # whether it answers
        self.database.set()
        self.heartbeat_age = 0.0

    def hand_back(self):
        self.handed_back += 1

    def job(self, job_id):
        self.asked += 1
        self.database.wait()
        return self

    def look(self):
        return self


@pytest.fixture
def stops():
    return []


@pytest.fixture
def ends():
    """When the process would have been ended."""
    return []


@pytest.fixture
def leave_of(stops, ends):
    made = []

    def make(worker):
        leave = Leave(worker, lambda: stops.append(None), lambda: ends.append(None))
        leave._consuming = True
        made.append(leave)
        return leave

    yield make
    for leave in made:
        leave.stop()


def test_without_a_reason_it_stays(leave_of, stops):
    worker = Stayer()
    leave_of(worker).look()
    assert not worker.draining.is_set()
    assert stops == []


def test_the_first_signal_drains_and_the_second_hands_back(leave_of, stops, caplog):
    caplog.set_level("INFO")
    worker = Stayer()
    leave = leave_of(worker)
    leave._signalled(15, None)
    leave.look()
    leave.look()
    assert worker.draining.is_set()
    assert worker.handed_back == 0
    leave._signalled(15, None)
    leave.look()
    assert worker.handed_back == 1
    events = [(vars(r)["event"], vars(r)["chunks_held"]) for r in caplog.records]
    assert events == [("draining", 3), ("handing_back", 3)]


def test_chunks_that_cannot_be_handed_back_do_not_keep_it(leave_of, ends, monkeypatch):
    monkeypatch.setattr(leave_module, "HANDING_BACK_SECONDS", 0.05)
    leave = leave_of(Stayer())
    leave._signalled(15, None)
    leave.look()
    time.sleep(0.2)
    assert ends == []
    leave._signalled(15, None)
    leave.look()
    wait_for("the end", lambda: ends, 30)


def test_a_signal_before_there_is_any_work_ends_it(leave_of):
    leave = leave_of(Stayer())
    leave._consuming = False
    with pytest.raises(SystemExit) as ended:
        leave._signalled(15, None)
    assert ended.value.code == 0


def test_a_signal_that_an_import_swallowed_is_obeyed_later(leave_of, stops):
    """A bare `except` around an import takes the SystemExit for an import that failed."""
    worker = Stayer()
    leave = leave_of(worker)
    leave._consuming = False
    with pytest.raises(SystemExit):
        leave._signalled(15, None)
    leave.start()
    wait_for("the end", lambda: stops, 30)
    assert worker.draining.is_set()
    assert worker.handed_back == 0


def test_the_end_of_its_job_is_a_reason(leave_of, stops, monkeypatch):
    monkeypatch.setattr(leave_module, "ASK_SECONDS", 0.01)
    worker = Stayer(exit_when_done="job_x")
    leave = leave_of(worker)
    leave.start()
    wait_for("questions", lambda: worker.asked > 2, 30)
    assert stops == []
    worker.state = JobState.COMPLETED
    wait_for("the end", lambda: stops, 30)
    assert worker.draining.is_set()


def test_what_it_has_finished_may_be_its_job(leave_of, stops, monkeypatch):
    for name in ("ASK_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(leave_module, name, 3600.0)
    worker = Stayer(exit_when_done="job_x")
    leave_of(worker).start()
    wait_for("the first question", lambda: worker.asked)
    worker.on_finished()
    wait_for("another", lambda: worker.asked == 2)
    assert stops == []
    worker.state = JobState.COMPLETED
    worker.on_finished()
    wait_for("the end", lambda: stops)


def test_to_look_for_reasons_asks_nobody(leave_of):
    worker = Stayer(exit_when_done="job_x")
    leave = leave_of(worker)
    for _ in range(25):
        leave.look()
    assert worker.asked == 0


def test_a_database_that_hangs_keeps_no_signal_waiting(leave_of, stops):
    worker = Stayer(exit_when_done="job_x")
    worker.database.clear()
    leave = leave_of(worker)
    leave.start()
    wait_for("the question", lambda: worker.asked, 30)
    try:
        for done in (worker.draining.is_set, lambda: worker.handed_back):
            leave._signalled(15, None)
            wait_for("obedience", done, 30)
        leave.stop()
    finally:
        worker.database.set()


def test_a_worker_that_drains_and_is_cut_off_from_its_database_hands_back(
    leave_of, ends, monkeypatch, caplog
):
    monkeypatch.setattr(leave_module, "HANDING_BACK_SECONDS", 0.05)
    worker = Stayer()
    leave = leave_of(worker)
    worker.heartbeat_age = 61.0
    leave.look()
    assert worker.handed_back == 0, "it may stay: a database comes back"
    leave._signalled(15, None)
    worker.heartbeat_age = 59.0
    leave.look()
    assert worker.handed_back == 0
    worker.heartbeat_age = 61.0
    leave.look()
    leave.look()
    assert worker.handed_back == 1
    assert caplog.text.count("did not answer for the length of a lease") == 1
    wait_for("the end", lambda: ends, 30)


def test_what_has_to_be_over_soon_ends_the_process_only_if_it_is_not(leave_of, ends, monkeypatch):
    monkeypatch.setattr(leave_module, "HANDING_BACK_SECONDS", 0.05)
    with leave_of(Stayer()).soon_over():
        pass
    time.sleep(0.2)
    assert ends == []
    with leave_of(Stayer()).soon_over():
        wait_for("the end", lambda: ends, 30)


def test_a_parent_that_is_gone_is_told_once(leave_of, monkeypatch, caplog):
    worker = Stayer(watch_parent=True)
    leave = leave_of(worker)
    leave.look()
    assert worker.handed_back == 0
    monkeypatch.setattr("os.getppid", lambda: 1)
    leave.look()
    leave.look()
    assert worker.handed_back == 1
    assert caplog.text.count("is gone") == 1


def test_a_worker_that_failed_leaves(leave_of, stops):
    worker = Stayer()
    worker.failure = RuntimeError("the engine is lost")
    leave_of(worker).look()
    assert stops
