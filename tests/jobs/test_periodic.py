"""The threads that keep a worker, or a beat, alive."""

import threading

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
    assert third.wait(5)
    periodic.stop()
    assert "heartbeat: OSError: database is away" in caplog.text


def test_a_nudge_brings_the_next_round_at_once():
    rounds = threading.Semaphore(0)
    periodic = Periodic("waker", 3600, rounds.release)
    periodic.start()
    assert rounds.acquire(timeout=5)
    periodic.nudge()
    assert rounds.acquire(timeout=5)
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
    assert done.wait(5)
