"""Which rows are computed twice: those that were not in the spool when their worker died."""

from __future__ import annotations

from contextlib import closing

import pytest

from jobs.database import Database
from jobs.spool import read_spool
from jobs.storage import Storage
from jobs.store import Store
from tests.support.deployment import wait_for

ENGINE = ("--num-blocks", "256", "--max-model-len", "256", "--threads", "1")
ROWS, TOKENS = 40, 120


@pytest.mark.parametrize("deployment", ["sqlite+memory", "postgresql+redis"], indirect=True)
def test_a_row_is_computed_again_only_if_its_worker_died_before_it_was_spooled(
    deployment, tiny_model
):
    rows = [
        {"prompt": f"Question {i}?", "max_tokens": TOKENS, "ignore_eos": True} for i in range(ROWS)
    ]
    deployment.hold_leases(60)  # one that runs out would have rows computed again, too
    # One chunk: what is saved before its end is saved in its spool, however long that takes.
    job = deployment.submit(rows, tiny_model, "--chunk-rows", str(ROWS))
    with closing(Database(deployment.settings.database_url)) as database:
        store = Store(database)
        with deployment.worker(tiny_model, *ENGINE, "--max-num-seqs", "2") as first:
            wait_for("finished rows", lambda: store.progress(job).counts.completed >= 5)
            first.kill_engine()  # which costs no row that was finished
            finished = store.progress(job).counts.completed
            wait_for("them to be saved", lambda: saved(deployment, store, job) >= finished)
            wait_for("more", lambda: store.progress(job).counts.completed > finished + 3)
            first.kill()
        (chunk,) = store.chunks(job)
        store.requeue_owned(chunk.lease_owner)
        kept = saved(deployment, store, job)
        with deployment.worker(tiny_model, *ENGINE, "--exit-when-done", job) as second:
            assert second.wait(120) == 0, second.logged()
        last = store.workers(all=True)[-1].status
    assert finished <= kept < ROWS
    assert last.rows_completed == ROWS - kept
    assert last.generated_tokens == (ROWS - kept) * TOKENS
    assert [row["row_index"] for row in deployment.results(job)] == list(range(ROWS))


def saved(deployment, store, job):
    """Rows that survive their worker: all of a chunk that is committed, else what is spooled."""
    folder = Storage(deployment.settings.storage_url).job(store.job(job).folder)
    return sum(
        chunk.rows if chunk.part else read_spool(folder, chunk.id, None).num_rows
        for chunk in store.chunks(job)
    )
