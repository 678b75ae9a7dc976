"""The threads that keep a worker, or a beat, alive."""

import threading
from types import SimpleNamespace

import pytest

from jobs.periodic import Periodic

pytestmark = pytest.mark.quick


def test_an_error_does_not_end_the_rounds(caplog):
    rounds = []
    third = threading.Event()

    def action():
        rounds.append(None)
        if len(rounds) == 3:
            third.set()
        raise OSError("database is away")

    periodic = Periodic("heartbeat", 0.001, action)
    periodic.start()
    assert third.wait(60)
    periodic.stop()
    assert "heartbeat: OSError: database is away" in caplog.text


def test_a_nudge_brings_the_next_round_at_once():
    rounds = threading.Semaphore(0)
    periodic = Periodic("waker", 3600, rounds.release)
    periodic.start()
    assert rounds.acquire(timeout=60)
    periodic.nudge()
    assert rounds.acquire(timeout=60)
    periodic.stop()


def test_no_round_begins_after_stop():
    count = 0

    def action():
        nonlocal count
        count += 1

    periodic = Periodic("x", 0.001, action)
    periodic.start()
    periodic.stop()
    seen = count
    periodic.nudge()
    assert count == seen


def test_an_action_may_stop_its_own_thread():
    done = threading.Event()
    periodic = Periodic("x", 0.001, lambda: (periodic.stop(), done.set()))
    periodic.start()
    assert done.wait(60)


class Rounds:
    """An action that fails as often as it is told, and a way to wait for its rounds."""

    def __init__(self, failures):
        self.errors = [OSError("database is away")] * failures
        self.periodic = Periodic("heartbeat", 0.001, self)
        self._done = threading.Semaphore(0)

    def __call__(self):
        self._done.release()
        if self.errors:
            raise self.errors.pop()

    def wait(self, count):
        for _ in range(count):
            assert self._done.acquire(timeout=60)


def test_an_error_that_stays_the_same_is_said_once(caplog):
    rounds = Rounds(failures=1000)
    rounds.periodic.start()
    rounds.wait(20)
    rounds.periodic.stop()
    assert caplog.text.count("database is away") == 1
    assert rounds.periodic.failures >= 19


def test_it_is_said_again_after_a_while(caplog, monkeypatch):
    monkeypatch.setattr("jobs.periodic.REPEAT_SECONDS", 0)
    rounds = Rounds(failures=1000)
    rounds.periodic.start()
    rounds.wait(5)
    rounds.periodic.stop()
    assert "database is away (3 times in a row)" in caplog.text


def test_an_end_of_the_trouble_is_said_too(caplog):
    caplog.set_level("INFO")
    rounds = Rounds(failures=3)
    rounds.periodic.start()
    rounds.wait(6)
    rounds.periodic.stop()
    assert "heartbeat: works again, after 3 failures" in caplog.text
    assert caplog.text.count("works again") == 1
    assert rounds.periodic.failures == 3


def test_the_age_is_that_of_the_last_success(monkeypatch):
    now = 100.0
    monkeypatch.setattr("jobs.periodic.time", SimpleNamespace(monotonic=lambda: now))
    rounds = Rounds(failures=1000)
    rounds.periodic.start()
    rounds.wait(2)
    now = 150.0
    rounds.wait(2)
    assert rounds.periodic.age == 50.0
    rounds.errors.clear()
    rounds.wait(3)
    assert rounds.periodic.age == 0.0
    rounds.periodic.stop()
