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

pytestmark = pytest.mark.quick


class Stayer:
    """A worker that only remembers what it was told; the real one is tried end to end."""

    def __init__(self, **options):
        self.options = SimpleNamespace(**{"exit_when_done": None, "watch_parent": False, **options})
        self.failure = None
        self.held = 3
        self.draining = threading.Event()
        self.handed_back = 0
        self.store = self
        self.state = JobState.IN_PROGRESS
        self.asked = 0

    def hand_back(self):
        self.handed_back += 1

    def job(self, job_id):
        self.asked += 1
        return self


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(leave_module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def stops():
    return []


@pytest.fixture
def ends():
    """When the process would have been ended."""
    return []


@pytest.fixture
def leave_of(stops, ends):
    def make(worker):
        made = Leave(worker, lambda: stops.append(None), lambda: ends.append(None))
        made.consuming = True
        return made

    return make


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
    leave.consuming = False
    with pytest.raises(SystemExit) as ended:
        leave._signalled(15, None)
    assert ended.value.code == 0


def test_the_state_of_the_job_is_asked_for_once_a_second(leave_of, stops, clock):
    worker = Stayer(exit_when_done="job_x")
    leave = leave_of(worker)
    for _ in range(25):
        leave.look()
        clock.now += 0.2
    assert worker.asked == 5
    worker.state = JobState.COMPLETED
    for _ in range(5):
        leave.look()
        clock.now += 0.2
    assert stops
    assert worker.draining.is_set()


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
