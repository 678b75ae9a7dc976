"""A job that is paused, resumed and cancelled while a worker generates thousands of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.database import Database
from jobs.states import ChunkState
from jobs.store import Store
from tests.support.deployment import Deployment, wait_for
from tests.support.tiny_model import build_tiny_model

SHORT, LONG = 4, 4
PROMPT_SECONDS = 2.0
ENGINE = (
    "--num-blocks", "2048", "--max-model-len", "8000", "--max-num-seqs", "8", "--threads", "1",
)  # fmt: skip

on_both_databases = pytest.mark.parametrize(
    "deployment", ["sqlite+memory", "postgresql+redis"], indirect=True
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("long"), max_position_embeddings=8192)


@contextmanager
def opened(deployment: Deployment) -> Iterator[Store]:
    database = Database(deployment.settings.database_url)
    try:
        yield Store(database)
    finally:
        database.close()


def is_at_work(store: Store, job_id: str) -> bool:
    """All short rows are answered, and the long ones are in the middle of it."""
    progress = store.progress(job_id)
    tokens = progress.counts.completion_tokens
    return progress.chunks_running == 1 and progress.counts.completed == SHORT and tokens > 100


def has_handed_back(store: Store, job_id: str) -> bool:
    return all(chunk.state is ChunkState.QUEUED for chunk in store.chunks(job_id))


def lives(deployment: Deployment, store: Store, model: Path, log: Path) -> float:
    """The whole life of one job; the longest time that its rows went on after they should not."""
    rows = [
        {"prompt": f"Row {i}", "max_tokens": 8 if i < SHORT else 7000, "ignore_eos": True}
        for i in range(SHORT + LONG)
    ]
    job_id = deployment.submit(rows, model)
    wait_for("the first answers", lambda: is_at_work(store, job_id))

    deployment.cli("pause", job_id)
    wait_for("the chunk to be handed back", lambda: has_handed_back(store, job_id))
    paused_at = store.job(job_id).paused_at
    assert paused_at is not None
    after_pause = (store.now() - paused_at).total_seconds()
    assert f"paused, cancelled or overdue: {SHORT} of {SHORT + LONG} rows" in log.read_text()
    wait_for("the engine to stop", lambda: store.workers()[0].status.running == 0)
    # What was finished is kept, and nothing else is begun.
    assert store.progress(job_id).counts.completed == SHORT
    assert store.workers()[0].status.chunks_held == 0

    adopted = log.read_text().count(f"{SHORT} finished rows adopted")
    deployment.cli("resume", job_id)
    wait_for("the job to go on", lambda: is_at_work(store, job_id))
    assert log.read_text().count(f"{SHORT} finished rows adopted") == adopted + 1

    deployment.cli("cancel", job_id)
    deployment.cli("wait", job_id, expect=2)
    job = store.job(job_id)
    assert job.finalizing_at is not None
    assert job.cancel_requested_at is not None
    after_cancel = (job.finalizing_at - job.cancel_requested_at).total_seconds()
    found = deployment.results(job_id)
    assert [row["row_index"] for row in found] == list(range(SHORT + LONG))
    assert all(row["completion_tokens"] == 8 for row in found[:SHORT])
    assert [row["error"]["code"] for row in found[SHORT:]] == ["cancelled"] * LONG
    assert (job.counts.completed, job.counts.cancelled) == (SHORT, LONG)
    wait_for("the engine to stop", lambda: store.workers()[0].status.running == 0)
    return max(after_pause, after_cancel)


@on_both_databases
def test_long_rows_stop_within_two_seconds_and_what_was_answered_is_kept(
    deployment: Deployment, model: Path
) -> None:
    deployment.env["PAGEMILL_HEARTBEAT_SECONDS"] = "1"  # as it is if nobody says otherwise
    deployment.hold_leases(60)  # one that runs out hands back, too, and rows are adopted again
    with deployment.worker(model, *ENGINE) as worker, opened(deployment) as store:
        # A machine that others use may be late, for a minute or so; of six times one is prompt.
        took = []
        for _ in range(6):
            took.append(lives(deployment, store, model, worker.log))
            if took[-1] < PROMPT_SECONDS:
                return
    raise AssertionError(f"rows went on for {took} seconds")
