"""A job that is deleted is gone from SQL and from the storage, whatever is killed in between."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from jobs.beat import Beat
from jobs.deletion import delete_jobs, finish_deletions
from jobs.errors import JobNotFound, StateConflict, StorageError
from jobs.finalize import drive
from jobs.leaving import Leaving
from jobs.records import Counts
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.tables import metadata
from tests.support.command_line import CommandLine
from tests.support.job_store import ROWS, StoreUnderTest, new_plan
from tests.support.played_job import PlayedJob, Window, add_job

quick = pytest.mark.quick


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "storage"))


@pytest.fixture
def ended(back: StoreUnderTest, storage: Storage) -> PlayedJob:
    job = add_job(back.store, storage, [Window([[0, 1], [2]], rejected=[3])])
    job.finish_all()
    drive(back.store, storage, "test")
    return job


def rows_in_sql(back: StoreUnderTest) -> dict[str, int]:
    with back.database.read() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in metadata.tables.items()
            if name not in ("events", "workers")
        }


def nothing_is_left(back: StoreUnderTest, job: PlayedJob) -> None:
    assert not job.storage.job(job.id).path.exists()
    assert set(rows_in_sql(back).values()) == {0}


@quick
def test_rows_and_files_are_gone_and_the_events_stay(
    back: StoreUnderTest, ended: PlayedJob, storage: Storage
) -> None:
    log = storage.root / "logs" / f"{ended.id}.log"
    log.parent.mkdir()
    log.touch()
    delete_jobs(back.store, storage, ended.id)
    nothing_is_left(back, ended)
    assert not log.exists()
    with pytest.raises(JobNotFound):
        back.store.job(ended.id)
    assert [event.event for event in back.store.events(ended.id)][-2:] == ["completed", "deleted"]
    assert back.store.was_deleted(ended.id)


@quick
def test_other_jobs_stay(back: StoreUnderTest, ended: PlayedJob, storage: Storage) -> None:
    other = add_job(back.store, storage, [Window([[0]])])
    delete_jobs(back.store, storage, ended.id)
    other.finish_all()
    drive(back.store, storage, "test")
    assert len(other.published()) == 1


@quick
@pytest.mark.parametrize("state", ["queued", "in_progress", "cancelling", "finalizing"])
def test_a_job_that_has_not_ended_is_refused(back: StoreUnderTest, state: str) -> None:
    job = back.add((1,))
    if state != "queued":
        assert back.store.claim_chunk("w", "m") is not None
    if state == "cancelling":
        back.store.request_cancel(job.id)
    if state == "finalizing":
        back.expire_leases()
        back.store.requeue_expired()
        back.finish_work(job.id)
    with pytest.raises(StateConflict, match=f"is {state}; wait until it has ended"):
        back.store.delete_job(job.id)
    assert back.store.job(job.id).state == state


@quick
def test_a_worker_that_comes_back_from_the_dead_is_fenced(back: StoreUnderTest) -> None:
    job = back.add((1,))
    lease = back.store.claim_chunk("w", "m")
    assert lease is not None
    back.expire_leases()
    back.store.requeue_expired()
    back.complete(job.id)
    back.store.delete_job(job.id)
    assert lease.chunk_id in back.store.renew("w", {lease.chunk_id: (1, Counts())}).lost
    assert not back.store.commit_chunk(lease, "p", Counts(completed=ROWS))
    assert not back.store.release_chunk(lease, Counts())


@quick
def test_a_retry_that_comes_too_late(back: StoreUnderTest) -> None:
    job = back.add((1,))
    back.complete(job.id)
    back.store.delete_job(job.id)
    with pytest.raises(JobNotFound):
        back.store.reopen(job.id, new_plan((1,)))


# ---- what is killed in between, and disks that refuse

KILLED = """
import os, shutil, sys
from pathlib import Path
from jobs.database import Database
from jobs.deletion import delete_jobs
from jobs.storage import Storage
from jobs.store import Store

def killed(path, onerror):
    if sys.argv[4] == "half way":
        next(Path(path).glob("v1/*.parquet")).unlink()
    os._exit(9)

shutil.rmtree = killed
delete_jobs(Store(Database(sys.argv[1])), Storage(sys.argv[2]), sys.argv[3])
"""


@pytest.mark.parametrize("when", ["before any file", "half way"])
def test_a_sweep_finishes_what_was_killed(
    back: StoreUnderTest, ended: PlayedJob, storage: Storage, when: str
) -> None:
    url = back.database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", KILLED, url, str(storage.root), ended.id, when]
    assert subprocess.run(command, timeout=120).returncode == 9
    with pytest.raises(JobNotFound):
        back.store.job(ended.id)
    assert storage.job(ended.id).path.exists()
    Beat(Settings.from_env({}), back.store, storage, Leaving()).finish()
    nothing_is_left(back, ended)


@quick
def test_a_storage_that_is_away_is_waited_for(
    back: StoreUnderTest, ended: PlayedJob, storage: Storage
) -> None:
    away = storage.root.with_name("elsewhere")
    storage.root.rename(away)
    with pytest.raises(StorageError, match="is not there"):
        delete_jobs(back.store, storage, ended.id)
    assert finish_deletions(back.store, storage) == 0
    away.rename(storage.root)
    assert finish_deletions(back.store, storage) == 1
    nothing_is_left(back, ended)


@pytest.fixture
def refusing(ended: PlayedJob, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which nothing can be removed; for root, by a call that fails."""
    folder = ended.storage.job(ended.id).at("v1")
    if os.geteuid() == 0:
        monkeypatch.setattr("shutil.rmtree", refuse)
    mode = folder.stat().st_mode
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    yield folder
    if folder.exists():
        folder.chmod(mode)


def refuse(path: Path, onerror: object) -> None:
    raise PermissionError(13, "Permission denied", str(path))


@quick
def test_files_that_cannot_be_removed_are_not_forgotten(
    back: StoreUnderTest, ended: PlayedJob, storage: Storage, refusing: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with pytest.raises(StorageError, match=r"cannot remove .*Permission denied"):
        delete_jobs(back.store, storage, ended.id)
    assert finish_deletions(back.store, storage) == 0
    assert [job_id for job_id, _ in back.store.deletions()] == [ended.id]
    monkeypatch.undo()
    refusing.chmod(0o755)
    assert finish_deletions(back.store, storage) == 1
    nothing_is_left(back, ended)


# ---- the command


def cancelled(cli: CommandLine, *options: str) -> str:
    job_id = cli.submit({"prompt": "a"}, options=options)
    cli("cancel", job_id)
    return job_id


@quick
def test_several_jobs_and_once_more(cli: CommandLine) -> None:
    jobs = [cancelled(cli) for _ in range(2)]
    _, said = cli("delete", jobs[0], jobs[1])
    assert [f"job {job_id} is deleted" in said for job_id in jobs] == [True, True]
    assert not [path for path in cli.storage.root.iterdir() if path.name in jobs]
    _, said = cli("delete", *jobs)
    assert f"job {jobs[0]} was deleted before" in said
    assert cli.json("events", jobs[0])[-1]["event"] == "deleted"
    cli("delete", "job_zzzzzzzzzzzz", expect=66)


@quick
def test_if_one_is_refused_none_is_deleted(cli: CommandLine) -> None:
    ended, waiting = cancelled(cli), cli.submit({"prompt": "b"})
    _, said = cli("delete", ended, waiting, expect=75)
    assert f"end it with `pagemill cancel {waiting}`" in said
    assert cli.json("status", ended)["state"] == "cancelled"


@quick
def test_its_key_is_free_again(cli: CommandLine) -> None:
    first = cancelled(cli, "--idempotency-key", "k")
    cli("delete", first)
    assert cli.submit({"prompt": "b"}, options=("--idempotency-key", "k")) != first


def test_a_terminal_is_asked(cli: CommandLine) -> None:
    job_id = cancelled(cli)
    for answer, code in (("n\n", 130), ("y\n", 0)):
        ours, theirs = os.openpty()
        os.write(ours, answer.encode())
        done = subprocess.run(
            [sys.executable, "-P", "-m", "jobs", "delete", job_id],
            stdin=theirs, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        os.close(theirs)
        os.close(ours)
        assert done.returncode == code, done.stderr
        assert "Delete 1 job with all files?" in done.stderr
        assert ("is deleted" in done.stderr) == (code == 0)
