"""A process that works on a played job, up to the point at which it dies.

    python -m tests.support.dying_player DATABASE_URL STORAGE JOB POINT

It does what a worker does with its chunks, in the same order and by the same functions, but
answers the rows by itself: no model is loaded, so that every point can be tried in seconds.
"""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa

from jobs.database import Database
from jobs.finalize import drive
from jobs.manifest import count_rows
from jobs.notifications.delivering import Deliverer
from jobs.parts import read_chunk_input, write_part
from jobs.records import ChunkLease
from jobs.result_table import failed_rows, result_table
from jobs.retry import plan_retry
from jobs.settings import Settings
from jobs.spool import SpoolWriter, read_spool
from jobs.storage import Storage
from jobs.store import Store
from jobs.tallies import tally_errors
from tests.support.crash_points import OF_A_RETRY, OF_A_SECOND_RETRY, POINTS, ROOT, arm
from tests.support.played_job import MODEL, PlayedJob

FINGERPRINT = "fingerprint"
LEASE_SECONDS = 0.5


def killed_at(point: str, database_url: str, storage: Storage, job_id: str) -> None:
    """Play the job in a process of its own, and see that it dies at the point."""
    arguments = (database_url, str(storage.root), job_id, point)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.dying_player", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == -9, f"{point} was not met\n{done.stdout}{done.stderr}"


def reopen(job: PlayedJob, version: int = 2) -> None:
    """Retry the failed rows of a job as that version, unless that was begun before."""
    if job.store.job(job.id).version < version:
        plan, counts = plan_retry(job.store, job.storage, job.id)
        job.store.reopen(job.id, plan, counts)


def play(job: PlayedJob) -> None:
    """Finish the chunks that can be claimed, and what is due after each of them."""
    while (lease := job.store.claim_chunk("player", MODEL)) is not None:
        _work_on(job, lease)
        drive(job.store, job.storage, "player", job.id)
    drive(job.store, job.storage, "player", job.id)


def deliver(job: PlayedJob) -> None:
    """Tell the end of the job to its URLs."""
    Deliverer(Settings.from_env({}), job.store, job.storage).deliver_due()


def _work_on(job: PlayedJob, lease: ChunkLease) -> None:
    folder = job.storage.job(lease.folder)
    rows = read_chunk_input(folder, lease.input_path, lease.ordinal)
    results = read_spool(folder, lease.chunk_id, FINGERPRINT)
    spool = SpoolWriter(folder, lease.chunk_id, lease.epoch, FINGERPRINT)
    for row in set(rows["row_index"].to_pylist()) - set(results["row_index"].to_pylist()):
        answer = result_table([job.answer(row)])
        spool.write(answer)
        results = pa.concat_tables([results, answer])
    part = write_part(folder, lease, rows, results, FINGERPRINT)
    errors = tally_errors(failed_rows(results))
    job.store.commit_chunk(lease, part, count_rows(results), errors)


def main() -> None:
    database_url, storage, job_id, point = sys.argv[1:]
    job = PlayedJob(
        Store(Database(database_url), lease_seconds=LEASE_SECONDS), Storage(storage), job_id
    )
    arm(POINTS[point])
    if point in OF_A_RETRY:
        reopen(job)
    if point in OF_A_SECOND_RETRY:
        reopen(job, 3)
    play(job)
    deliver(job)


if __name__ == "__main__":
    main()
