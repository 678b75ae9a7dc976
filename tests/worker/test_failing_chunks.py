"""Chunks that fail in their worker: what may pass is waited for, what may not ends the job."""

from __future__ import annotations

import errno
from threading import Thread

import pytest
from sqlalchemy import select

from jobs.attempts import MOST_FAILURES
from jobs.errors import DatabaseUnavailable
from jobs.results import open_partial
from jobs.states import JobState
from jobs.tables import row_errors
from worker import attempt

# Functions of `worker.attempt` that meet an error, and how many rows are answered by then.
STEPS = {"read_chunk_input": 0, "Trials": 0, "write_part": 5, "tally_errors": 5}


def failing(patch, name, error):
    def fail(*arguments, **more):
        raise error

    patch.setattr(attempt, name, fail)


def try_once(place, answers=False):
    """Let a worker try the chunk; returns the worker.

    Args:
        answers: its engine gets the rows, and answers them.
    """
    worker = place.worker()
    if answers:
        thread = place.begin(worker)
        worker._bridge.answer()
    else:  # no row gets to its engine
        thread = Thread(target=worker.run_chunk, daemon=True)
        thread.start()
    thread.join(60)
    assert worker._bridge.waiting == {}
    assert not thread.is_alive()
    return worker


def fail_once(place, answers=False):
    """Let a worker try the chunk, and its lease run out."""
    worker = try_once(place, answers)
    assert place.store.requeue_owned(worker.id) == 1


@pytest.mark.parametrize("name", STEPS)
def test_what_nobody_foresaw_fails_the_job_after_some_tries(place, monkeypatch, name):
    failing(monkeypatch, name, ValueError("a bug"))
    fail_once(place, answers=bool(STEPS[name]))
    for _ in range(MOST_FAILURES - 2):
        fail_once(place)
    assert not place.store.job(place.job).state.terminal
    place.worker().run_chunk()
    job = place.store.job(place.job)
    assert (job.state, job.error_code) == (JobState.FAILED, "internal_error")
    step = f"answering chunk 0 failed {MOST_FAILURES} times, the last time with ValueError: a bug"
    assert job.error_message.startswith(step)
    told = [e.detail for e in place.store.events(place.job) if e.event == "unfinished"]
    assert told == ["version 1, answering chunk 0: ValueError: a bug"] * MOST_FAILURES

    groups = open_partial(place.store, place.storage, job).groups(["row_index", "text"])
    texts = [row["text"] for table in groups for row in table.to_pylist()]
    assert texts == ["ok"] * STEPS[name]


@pytest.mark.parametrize("name", STEPS)
def test_a_try_that_fails_costs_no_row_that_was_answered(place, monkeypatch, name):
    with monkeypatch.context() as patch:
        failing(patch, name, ValueError("a bug"))
        fail_once(place, answers=bool(STEPS[name]))
    try_once(place, answers=not STEPS[name])
    assert place.store.job(place.job).state is JobState.COMPLETED


PASSING = {
    "no memory": MemoryError(),
    "too many files": OSError(errno.EMFILE, "Too many open files"),
    "a database that is away": DatabaseUnavailable("database: it is away"),
}


@pytest.mark.parametrize("error", PASSING.values(), ids=list(PASSING))
def test_what_may_pass_is_waited_for_however_long(place, monkeypatch, error):
    failing(monkeypatch, "read_chunk_input", error)
    for _ in range(MOST_FAILURES):
        fail_once(place)
    place.worker().run_chunk()
    job = place.store.job(place.job)
    assert job.state is JobState.IN_PROGRESS
    if not isinstance(error, DatabaseUnavailable):
        assert job.waiting_for.startswith("another try, as answering chunk 0 failed: ")
    assert all(e.event != "unfinished" for e in place.store.events(place.job))


def test_a_template_that_refuses_in_words_that_no_file_takes(place, monkeypatch):
    """Half a surrogate pair is text for Jinja, and for no file and no database."""

    def refused(lease, row, encoder):
        monkeypatch.setattr(
            encoder._tokenizer, "chat_template", r"{{ raise_exception('no \ud800 here') }}"
        )
        return encoder.render([{"role": "user", "content": "hi"}]), True

    monkeypatch.setattr("worker.requests.row_text", refused)
    place.worker().run_chunk()
    job = place.store.job(place.job)
    assert (job.state, job.counts.failed) == (JobState.COMPLETED, 5)
    with place.database.read() as connection:
        (found,) = connection.execute(select(row_errors)).all()
    assert (found.code, found.rows) == ("chat_template_refused", 5)
    assert found.message.endswith(r"refuses the messages: no \ud800 here")
