"""Workers and engines that are stopped (SIGSTOP) for longer than a lease lasts, and go on then."""

from __future__ import annotations

import hashlib
import os
import signal

import pytest

from jobs.database import Database
from jobs.store import Store
from tests.support.deployment import wait_for

ENGINE = ("--num-blocks", "256", "--max-model-len", "256", "--threads", "1", "--concurrency", "1")
SLOW = (*ENGINE, "--max-num-seqs", "2")
TOKENS = 150

on_both_databases = pytest.mark.parametrize(
    "deployment", ["sqlite+memory", "postgresql+redis"], indirect=True
)


@pytest.fixture
def store(deployment):
    database = Database(deployment.settings.database_url)
    yield Store(database)
    database.close()


def questions(number):
    return [
        {"prompt": f"Question {i}?", "max_tokens": TOKENS, "ignore_eos": True}
        for i in range(number)
    ]


def published(deployment, job):
    """The files of the published version, by name."""
    folder = deployment.home / "storage" / job / "v1"
    return {p.name: hashlib.sha256(p.read_bytes()).digest() for p in folder.iterdir()}


def freeze(worker, *, with_engine):
    """Stop a worker; returns what lets it go on."""
    stopped = [worker.process.pid, *([worker.engine().pid] if with_engine else [])]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)

    def wake():
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)

    return wake


@on_both_databases
def test_a_frozen_worker_is_fenced_and_publishes_nothing(deployment, tiny_model, store):
    """One is frozen alone and wakes in the middle of the job, one with its engine, and late."""
    job = deployment.submit(questions(60), tiny_model, "--chunk-rows", "20")
    deployment.cli("pause", job)  # until both are there

    def both_have_answers():
        begun = [chunk for chunk in store.chunks(job) if chunk.counts.completed]
        return len(begun) == 2 and begun

    with deployment.worker(tiny_model, *SLOW) as one, deployment.worker(tiny_model, *SLOW) as two:
        for worker in (one, two):
            wait_for("a worker", lambda worker=worker: "ready for chunks" in worker.logged())
        deployment.cli("resume", job)
        begun = wait_for("answers of both", both_have_answers)
        wake_one = freeze(one, with_engine=False)
        wake_two = freeze(two, with_engine=True)
        with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as other:
            wait_for("the chunks to be taken from them", lambda: are_taken(store, job, begun))
            wake_one()
            wait_for("the fence", lambda: "fenced" in one.logged())
            assert other.wait(120) == 0, other.logged()
        files, found = published(deployment, job), deployment.results(job)
        wake_two()
        wait_for("the fence", lambda: "fenced" in two.logged())
        for worker in (one, two):
            worker.signal(signal.SIGTERM)
        for worker in (one, two):
            assert worker.wait(60) == 0, worker.logged()
    assert [row["row_index"] for row in found] == list(range(60))
    assert all(row["completion_tokens"] == TOKENS for row in found)
    assert published(deployment, job) == files


def are_taken(store, job, chunks):
    owners = {chunk.id: chunk.lease_owner for chunk in store.chunks(job)}
    return all(owners[chunk.id] != chunk.lease_owner for chunk in chunks)


@pytest.mark.parametrize("deployment", ["sqlite+memory"], indirect=True)
def test_a_frozen_engine_costs_no_lease(deployment, tiny_model, store):
    """Its worker is well, and waits: no other may have the chunk meanwhile."""
    deployment.hold_leases(6)
    job = deployment.submit(questions(12), tiny_model)
    with deployment.worker(tiny_model, *SLOW, "--exit-when-done", job) as worker:
        wait_for("answers", lambda: store.progress(job).counts.completed)
        engine = worker.engine()
        engine.suspend()
        before = store.progress(job)
        now = before.now
        while (now - before.now).total_seconds() < 1.5 * deployment.settings.lease_seconds:
            now = wait_for("time to pass", lambda: store.progress(job)).now
        engine.resume()
        assert worker.wait(120) == 0, worker.logged()
    assert [chunk.lease_epoch for chunk in store.chunks(job)] == [1]
    assert [row["row_index"] for row in deployment.results(job)] == list(range(12))
