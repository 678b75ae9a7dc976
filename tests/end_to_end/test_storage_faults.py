"""A storage that is full, read-only or away under real commands and a real worker."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.database import Database
from jobs.states import ChunkState, JobState
from jobs.store import Store
from tests.support.crashes import ENGINE, check_answers, check_books, computing, rows
from tests.support.deployment import BACKENDS, Deployment, deployed, wait_for
from tests.support.sick_disk import SickDisk, ways

ROWS = 48
FAULTS = [(way, kind) for way in ways() for kind in ("full", "read-only")]
ALWAYS = (ways()[0], "full")  # in `make test`
DATABASES = [BACKENDS[0], pytest.param(BACKENDS[-1], marks=pytest.mark.chaos)]


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SickDisk]:
    with SickDisk(tmp_path / "home" / "storage", request.param).prepared() as made:
        yield made


@pytest.fixture(params=DATABASES)
def on_disk(request: pytest.FixtureRequest, disk: SickDisk) -> Iterator[Deployment]:
    """A deployment whose storage is on that disk; its database is not."""
    with deployed(disk.folder.parent, request.param) as made:
        made.env.update(disk.env)
        made.hold_leases(60)  # none may run out: no worker dies here, and no row is computed twice
        yield made


@contextmanager
def opened(deployment: Deployment) -> Iterator[Store]:
    database = Database(deployment.settings.database_url)
    try:
        yield Store(database, lease_seconds=deployment.settings.lease_seconds)
    finally:
        database.close()


@pytest.fixture
def store(on_disk: Deployment) -> Iterator[Store]:
    with opened(on_disk) as made:
        yield made


def message_of_the_worker(store: Store) -> str:
    return " ".join(worker.status.message or "" for worker in store.workers())


@pytest.mark.parametrize(
    ("disk", "kind"),
    [
        pytest.param(*fault, marks=[] if fault[0] == ways()[0] else [pytest.mark.chaos])
        for fault in FAULTS
    ],
    indirect=["disk"],
)
def test_a_submit_ends_and_leaves_nothing(
    on_disk: Deployment, disk: SickDisk, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{i} " * 50}) + "\n" for i in range(2000)))
    submit = ("submit", str(path), "--model", "m")
    first = on_disk.cli(*submit).stdout.strip()

    with disk.sick(kind):
        said = on_disk.cli(*submit, expect=74).stderr

    assert len(said.strip().splitlines()) == 1, said
    assert re.search({"full": "disk is full", "read-only": "Read-only"}[kind], said)
    assert str(disk.folder) in said
    assert {p.name for p in disk.folder.iterdir()} <= {".pagemill", first}
    assert [job["id"] for job in json.loads(on_disk.cli("list", "--json").stdout)] == [first]
    on_disk.cli(*submit)


@pytest.mark.parametrize(
    ("disk", "kind"),
    [
        pytest.param(*fault, marks=[] if fault == ALWAYS else [pytest.mark.chaos])
        for fault in FAULTS
    ],
    indirect=["disk"],
)
def test_a_worker_waits_and_computes_nothing_again(
    on_disk: Deployment,
    disk: SickDisk,
    kind: str,
    store: Store,
    tiny_model: Path,
    calm_answers: list[dict[str, Any]],
) -> None:
    job = on_disk.submit(rows(ROWS), tiny_model, "--chunk-rows", "16")
    with on_disk.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
        with disk.sick(kind):
            said = wait_for("a word on it", lambda: store.job(job).waiting_for, 120)
            # Every chunk that it holds is computed, and has no place to go.
            wait_for("the answers", lambda: store.progress(job).counts.completed >= 32, 120)
            wait_for("the worker's word", lambda: said in message_of_the_worker(store), 60)
            assert not store.job(job).state.terminal
            assert said in on_disk.cli("status", job).stdout
            waited = on_disk.cli("wait", job, "--timeout", "1", expect=124)
            assert f"waits for {said}" in waited.stderr
        assert worker.wait(120) == 0, worker.logged()

    check_answers(calm_answers[:ROWS], on_disk.results(job))
    check_books(on_disk, job, ROWS)
    assert store.job(job).waiting_for is None
    (told,) = store.workers(all=True)
    assert told.status.generated_tokens == store.job(job).counts.completion_tokens
    assert told.status.message is None
    assert worker.logged().count("waiting for") <= 4  # it did not ask again and again
    chunks = store.chunks(job)
    assert {chunk.lease_epoch for chunk in chunks} == {1}, "a chunk went back"


@pytest.mark.chaos
@pytest.mark.parametrize("disk", ways(), indirect=True)
def test_a_worker_that_leaves_meanwhile_hands_its_chunks_back(
    on_disk: Deployment,
    disk: SickDisk,
    store: Store,
    tiny_model: Path,
    calm_answers: list[dict[str, Any]],
) -> None:
    job = on_disk.submit(rows(ROWS), tiny_model, "--chunk-rows", "16")
    with disk.sick("full"), on_disk.worker(tiny_model, *ENGINE) as worker:
        wait_for("a word on it", lambda: store.job(job).waiting_for, 120)
        for said in ("draining", "handing"):
            worker.signal(signal.SIGTERM)
            wait_for("the signal to be heard", lambda said=said: said in worker.logged(), 60)
        assert worker.wait(60) == 0, worker.logged()
    assert "will be computed again" in worker.logged()
    assert {chunk.state for chunk in store.chunks(job)} == {ChunkState.QUEUED}
    assert store.job(job).waiting_for is None

    with on_disk.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
        assert worker.wait(120) == 0, worker.logged()
    check_answers(calm_answers[:ROWS], on_disk.results(job))
    check_books(on_disk, job, ROWS)


@pytest.mark.chaos
@pytest.mark.parametrize("disk", ways(), indirect=True)
def test_a_job_that_is_cancelled_meanwhile_keeps_what_was_answered(
    on_disk: Deployment, disk: SickDisk, store: Store, tiny_model: Path
) -> None:
    job = on_disk.submit(rows(ROWS), tiny_model, "--chunk-rows", "16")
    with on_disk.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
        with disk.sick("full"):
            wait_for("answers", lambda: store.progress(job).counts.completed >= 10, 120)
            on_disk.cli("cancel", job)
            wait_for("a word on it", lambda: store.job(job).waiting_for, 120)
            assert store.job(job).state is JobState.CANCELLING
            answered = store.progress(job).counts.completed
        assert worker.wait(120) == 0, worker.logged()
    record = store.job(job)
    assert record.state is JobState.CANCELLED
    assert record.counts.completed >= answered
    assert record.counts.rows == ROWS == len(on_disk.results(job))


@pytest.mark.parametrize("deployment", DATABASES, indirect=True)
def test_a_worker_waits_for_a_storage_that_is_not_mounted(
    deployment: Deployment, tiny_model: Path, calm_answers: list[dict[str, Any]]
) -> None:
    deployment.hold_leases(60)
    count = 6 * ROWS  # an idle machine is through with fewer before anybody has seen it compute
    with opened(deployment) as store:
        job = deployment.submit(rows(count), tiny_model, "--chunk-rows", "16")
        root = Path(deployment.settings.storage_url)
        elsewhere = root.with_name("elsewhere")

        root.rename(elsewhere)
        assert (
            "is not there"
            in deployment.cli(
                "submit", "-", "--model", "m", stdin=b'{"prompt": "a"}\n', expect=74
            ).stderr
        )
        with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as worker:
            wait_for(
                "a word on it", lambda: "is not there" in (store.job(job).waiting_for or ""), 120
            )
            wait_for("its message", lambda: "is not there" in message_of_the_worker(store), 60)
            assert "storage" in worker.logged()
            elsewhere.rename(root)
            wait_for("answers", lambda: computing(store, job), 120)

            root.rename(elsewhere)
            wait_for(
                "a word on it", lambda: "is not there" in (store.job(job).waiting_for or ""), 120
            )
            assert not root.exists()
            elsewhere.rename(root)
            assert worker.wait(120) == 0, worker.logged()

        check_answers(calm_answers[:count], deployment.results(job))
        check_books(deployment, job, count)
