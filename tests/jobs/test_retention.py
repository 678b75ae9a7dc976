"""What is not kept for ever: jobs whose retention is over, and what killed commands left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.beat import Beat
from jobs.errors import JobNotFound, SettingsError
from jobs.housekeeping import delete_old, keep_house
from jobs.leaving import Leaving
from jobs.orphans import SAFE_AGE_SECONDS, orphans, remove_orphan
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store, events
from jobs.submission import new_job_id
from tests.support.command_line import CommandLine
from tests.support.job_store import StoreUnderTest, new_plan
from tests.support.submissions import prepare_lines

quick = pytest.mark.quick

DAY = 24 * 3600.0


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = Storage(str(tmp_path / "storage"))
    storage.new_job("job_first")  # the first one makes the storage
    return storage


# ---- the setting


@quick
@pytest.mark.parametrize(
    ("text", "seconds"), [("", None), ("30d", 30 * DAY), ("1h30m", 5400.0), ("90s", 90.0)]
)
def test_the_setting_is_a_duration(text: str, seconds: float | None) -> None:
    settings = Settings.from_env({"PAGEMILL_RETENTION": text})
    assert settings.retention_seconds == seconds
    assert Settings.from_env(settings.to_env()) == settings
    assert Settings.from_env({}).retention_seconds is None


@quick
@pytest.mark.parametrize("text", ["30", "0d", "a month", "-1d", "99999999999d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(SettingsError, match=f"PAGEMILL_RETENTION is '{text}'; it must be"):
        Settings.from_env({"PAGEMILL_RETENTION": text})


# ---- jobs


def ended(back: StoreUnderTest, ago: float) -> str:
    job = back.add((1,))
    back.complete(job.id)
    back.set_job(job.id, finished_at=datetime.now(UTC) - timedelta(seconds=ago))
    return job.id


@quick
def test_jobs_go_that_ended_long_ago(back: StoreUnderTest, storage: Storage) -> None:
    old, young = ended(back, 31 * DAY), ended(back, 29 * DAY)
    waiting = back.add((1,))
    back.set_job(waiting.id, created_at=datetime(2020, 1, 1, tzinfo=UTC))
    (storage.root / old).mkdir()
    keep_house(back.store, storage, None)
    assert back.store.job(old)
    keep_house(back.store, storage, 30 * DAY)
    with pytest.raises(JobNotFound):
        back.store.job(old)
    assert not (storage.root / old).exists()
    assert {job.id for job in back.store.list_jobs()} == {young, waiting.id}
    assert back.store.events(old)[-1].detail == "its retention is over"


@quick
def test_a_job_that_is_retried_in_the_meantime_stays(back: StoreUnderTest) -> None:
    job_id = ended(back, 31 * DAY)
    assert [job.id for job in back.store.jobs_that_ended(30 * DAY)] == [job_id]
    back.store.reopen(job_id, new_plan((1,)))
    assert not delete_old(back.store, job_id, 30 * DAY)
    back.complete(job_id)
    assert not delete_old(back.store, job_id, 30 * DAY)  # it has ended again just now
    assert back.store.job(job_id)


@quick
def test_a_beat_does_it(back: StoreUnderTest, storage: Storage) -> None:
    job_id = ended(back, 100)
    settings = Settings.from_env({"PAGEMILL_RETENTION": "90s"})
    Beat(settings, back.store, storage, Leaving()).keep_house()
    assert back.store.list_jobs() == []
    assert back.store.events(job_id)[-1].actor.startswith("beat:")


@quick
def test_events_of_a_job_go_long_after_it(
    back: StoreUnderTest, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = ended(back, 1), ended(back, 1)
    back.store.delete_job(gone)
    keep_house(back.store, storage, None)
    assert back.store.was_deleted(gone)
    monkeypatch.setattr(events, "KEPT_SECONDS", -1.0)
    keep_house(back.store, storage, None)
    assert not back.store.was_deleted(gone)
    assert back.store.events(there)


# ---- orphans


def old_folder(storage: Storage, name: str, *files: str, age: float = 2 * DAY) -> Path:
    """A folder in which nothing was written for so long."""
    folder = storage.root / name
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    folder.mkdir(exist_ok=True)
    make_old(folder, age)
    return folder


def make_old(folder: Path, age: float = 2 * DAY) -> None:
    then = time.time() - age
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


@quick
def test_what_a_killed_submit_left_goes(back: StoreUnderTest, storage: Storage) -> None:
    copied = old_folder(storage, new_job_id(), "_input/v1.parquet")
    torn = old_folder(storage, new_job_id(), "_input/.v1.parquet.0f.tmp")
    empty = old_folder(storage, new_job_id())
    found = list(orphans(back.store, storage))
    assert found == sorted(path.name for path in (copied, torn, empty))
    keep_house(back.store, storage, None)
    assert not any(path.exists() for path in (copied, torn, empty))


@quick
def test_what_stays(back: StoreUnderTest, storage: Storage) -> None:
    """Whatever is young, known, not ours by name, or may be of another database."""
    known = back.add((1,), id=new_job_id())
    folders = [
        old_folder(storage, known.id, "_input/v1.parquet"),
        old_folder(storage, new_job_id(), "_input/v1.parquet", age=SAFE_AGE_SECONDS - 600),
        old_folder(storage, new_job_id(), "_input/v1.parquet", "_submitted"),
        old_folder(storage, new_job_id(), "_input/v1.parquet", "v1/part-00000.parquet"),
        old_folder(storage, new_job_id(), "_spool/c/e1-0001.arrow"),
        old_folder(storage, "job_" + "a" * 19, "_input/v1.parquet"),
        old_folder(storage, "job_" + "A" * 20, "_input/v1.parquet"),
        old_folder(storage, "my results", "_input/v1.parquet"),
        old_folder(storage, "logs"),
    ]
    at_work = old_folder(storage, new_job_id(), "_input/v1.parquet")
    (at_work / "_input" / ".v1-rejected-w00000.parquet.0f.tmp").touch()
    (storage.root / new_job_id()).symlink_to(storage.root / "my results")
    assert list(orphans(back.store, storage)) == []
    keep_house(back.store, storage, None)
    assert all(folder.exists() for folder in [*folders, at_work])


@quick
def test_a_clock_that_jumped_makes_nothing_old(
    back: StoreUnderTest, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_folder(storage, new_job_id(), "_input/v1.parquet", age=3600)
    ahead = time.time() + 30 * DAY
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert list(orphans(back.store, storage)) == []
    monkeypatch.setattr(Storage, "now", lambda self: ahead)
    assert list(orphans(back.store, storage)) == []


@quick
def test_a_submit_that_ends_in_the_last_moment(store: Store, storage: Storage) -> None:
    new = prepare_lines(storage.root.parent, {"prompt": "a"}).job
    make_old(storage.root / new.folder)
    (found,) = orphans(store, storage)
    store.insert_job(new)
    assert not remove_orphan(store, storage, found)
    assert (storage.root / new.folder / "_input" / "v1.parquet").exists()


def folders(cli: CommandLine) -> set[str]:
    return {path.name for path in cli.storage.root.glob("job_*")}


def test_a_submit_that_is_killed_before_its_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real process, and the command that cleans up after it."""
    cli = CommandLine(tmp_path / "home", monkeypatch)
    kept = cli.submit({"prompt": "a"})
    code = (
        "import os, sys\n"
        "from jobs.job_folder import JobFolder\n"
        "JobFolder.mark = lambda self, name: os._exit(9)\n"
        "from jobs.__main__ import main\n"
        f"sys.argv = ['pagemill', 'submit', {str(cli.home / 'rows.jsonl')!r}, '--model', 'm']\n"
        "main()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 9
    (left,) = folders(cli) - {kept}
    assert cli("gc")[0] == ""  # it is young
    for name in (left, kept):
        make_old(cli.storage.root / name)
    out, said = cli("gc", "--dry-run")
    assert out == f"{left}  was never submitted\n"
    assert "0 jobs would be deleted, 1 folder removed" in said
    assert cli("gc")[0] == out
    assert folders(cli) == {kept}
    assert (cli.storage.root / kept / "_submitted").exists()


@quick
def test_gc_prints_what_it_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = CommandLine(tmp_path / "home", monkeypatch)
    job_id = cli.submit({"prompt": "a"})
    cli("cancel", job_id)
    out, said = cli("gc")
    assert out == ""
    assert "PAGEMILL_RETENTION is not set" in said
    monkeypatch.setenv("PAGEMILL_RETENTION", "0.001s")
    out, _ = cli("gc", "--dry-run")
    assert out.startswith(f"{job_id}  cancelled 2")
    assert cli.json("status", job_id)["state"] == "cancelled"
    assert cli("gc")[0] == out
    assert cli.json("list") == []
    assert folders(cli) == set()
