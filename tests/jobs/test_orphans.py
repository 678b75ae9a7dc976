"""Storage that two databases share: neither removes what a submit to the other needs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs import layout
from jobs.errors import StorageError, StorageUnavailable
from jobs.housekeeping import keep_house
from jobs.job_folder import JobFolder
from jobs.orphans import claim_for_submit, orphans, remove_orphan, strangers
from jobs.parts import read_chunk_input
from jobs.storage import Storage
from jobs.store import Store
from jobs.submission import new_job_id
from tests.support.command_line import CommandLine
from tests.support.crash_points import OF_A_SUBMIT, arm_commands
from tests.support.deployment import wait_for
from tests.support.job_store import StoreUnderTest
from tests.support.played_job import sqlite_store
from tests.support.stopped_submit import go_on, stopped_before
from tests.support.submitter import started

COPY = layout.input_copy(1)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "storage"))


@pytest.fixture
def other(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Store]:
    """Another database of the same storage."""
    (tmp_path / "other").mkdir()
    with sqlite_store(migrated_sqlite, tmp_path / "other") as store:
        yield store


@pytest.fixture
def env(back: StoreUnderTest, storage: Storage, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PAGEMILL_DATABASE_URL": back.database.url.render_as_string(hide_password=False),
        "PAGEMILL_STORAGE_URL": str(storage.root),
        "PAGEMILL_HOME": str(tmp_path / "home"),
        "PAGEMILL_BROKER_URL": "",
    }


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n' * 3)
    return path


def copied(storage: Storage) -> JobFolder:
    """The folder of a submit that has copied its input, and did nothing since for two days."""
    folder = storage.new_job(new_job_id())
    with folder.create(COPY) as file:
        file.write(b"rows")
    two_days_pass(storage)
    return folder


def two_days_pass(storage: Storage) -> None:
    then = time.time() - 2 * 24 * 3600
    for path in storage.root.rglob("*"):
        os.utime(path, (then, then), follow_symlinks=False)


def job_folders(storage: Storage) -> list[str]:
    return [name for name in storage.folders() if name.startswith("job_")]


# ---- the mark


@pytest.mark.quick
def test_of_those_who_want_a_folder_one_gets_it(storage: Storage) -> None:
    first, second = copied(storage), copied(storage)
    assert first.mark(layout.SUBMITTED)
    assert not first.mark(layout.SUBMITTED)
    assert not first.take(layout.SUBMITTED)
    assert second.take(layout.SUBMITTED)
    assert second.take(layout.SUBMITTED)
    assert not second.mark(layout.SUBMITTED)


Moment = Callable[[JobFolder], None]
TAKEN: dict[str, Moment] = {
    "taken": lambda folder: None,
    "its input is removed": lambda folder: folder.remove(layout.INPUT_FOLDER),
    "its mark is removed": lambda folder: (
        folder.remove(layout.INPUT_FOLDER),
        folder.at(layout.SUBMITTED).rmdir(),
    ),
    "it is gone": lambda folder: folder.remove_all(),
}


@pytest.mark.quick
@pytest.mark.parametrize("moment", TAKEN)
def test_a_submit_that_goes_on_while_it_is_removed_inserts_nothing(
    other: Store, storage: Storage, moment: str
) -> None:
    folder = copied(storage)
    assert folder.take(layout.SUBMITTED)
    TAKEN[moment](folder)
    with pytest.raises(StorageError, match=r"was removed: .* 24 hours.* submit the file again"):
        claim_for_submit(folder, COPY)
    # And whoever removes it is killed there: the next one goes on, however young it is.
    keep_house(other, storage, None)
    assert [path for path in folder.path.rglob("*") if path.name != layout.SUBMITTED] == []


@pytest.mark.quick
def test_a_submit_that_is_found_old_and_goes_on_first(other: Store, storage: Storage) -> None:
    folder = copied(storage)
    (found,) = orphans(other, storage)
    claim_for_submit(folder, COPY)
    assert not remove_orphan(other, storage, found)
    two_days_pass(storage)
    keep_house(other, storage, None)
    assert folder.read(COPY) == b"rows"
    assert strangers(other, storage) == [folder.path.name]


@pytest.mark.quick
def test_a_link_in_the_place_of_the_mark_is_followed_by_nobody(
    other: Store, storage: Storage, tmp_path: Path
) -> None:
    folder = copied(storage)
    folder.path.joinpath(layout.SUBMITTED).symlink_to(tmp_path)
    two_days_pass(storage)
    keep_house(other, storage, None)
    assert folder.read(COPY) == b"rows"


# ---- real submits


@pytest.mark.parametrize("point", OF_A_SUBMIT)
def test_another_database_removes_no_job_of_a_killed_submit(
    back: StoreUnderTest, other: Store, storage: Storage, env: dict[str, str], rows: Path,
    tmp_path: Path, point: str,
) -> None:  # fmt: skip
    command = [sys.executable, "-P", "-m", "jobs", "submit", str(rows), "--model", "m"]
    armed = arm_commands(point, "jobs", tmp_path / "armed")
    assert subprocess.run(command, env=env | armed, timeout=120, check=False).returncode == -9
    two_days_pass(storage)
    keep_house(other, storage, None)
    two_days_pass(storage)
    keep_house(back.store, storage, None)
    if point == "the job is in SQL":
        check_can_be_answered(back.store, storage)
    elif point == "the job is not in SQL":
        # Between its mark and its insert: nobody knows what became of it, so it stays.
        assert strangers(other, storage) == strangers(back.store, storage) == job_folders(storage)
        assert len(job_folders(storage)) == 1
    else:
        assert job_folders(storage) == []


def check_can_be_answered(store: Store, storage: Storage) -> None:
    (job,) = store.list_jobs()
    folder = storage.job(job.folder)
    table = read_chunk_input(folder, store.claim_chunk("w", "m").input_path, 0)  # type: ignore[union-attr]
    assert table["row_index"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("method", ["finish", "mark"])
def test_a_submit_that_sleeps_before_its_mark_queues_nothing(
    back: StoreUnderTest, other: Store, storage: Storage, env: dict[str, str], rows: Path,
    method: str,
) -> None:  # fmt: skip
    with stopped_before(method, rows, env) as submit:
        two_days_pass(storage)
        keep_house(other, storage, None)
        code, out, said = go_on(submit)
    assert (code > 0, out) == (True, "")
    assert "removed" in said
    assert "Traceback" not in said
    assert back.store.list_jobs() == []
    assert job_folders(storage) == []


def test_a_submit_that_sleeps_after_its_mark_loses_nothing(
    back: StoreUnderTest, other: Store, storage: Storage, env: dict[str, str], rows: Path
) -> None:
    with stopped_before("insert_job", rows, env) as submit:
        two_days_pass(storage)
        for store in (other, back.store):
            keep_house(store, storage, None)
        code, out, said = go_on(submit)
    assert code == 0, said
    assert [job.id for job in back.store.list_jobs()] == [out.strip()]
    check_can_be_answered(back.store, storage)


def test_submits_and_collectors_of_two_databases_in_a_race(
    back: StoreUnderTest, other: Store, storage: Storage, rows: Path
) -> None:
    """Submits are killed at random; whatever is in SQL has its copy."""
    url = back.database.url.render_as_string(hide_password=False)
    urls = (url, other._database.url.render_as_string(hide_password=False))
    storage.new_job("job_first")  # the first one makes the storage
    random.seed(5)
    submitters = [started("submit", url, str(storage.root), str(rows)) for _ in range(2)]
    collectors = [started("collect", each, str(storage.root)) for each in urls]
    try:
        for _ in range(3):
            before = jobs_in(back.store)
            wait_for("submits", lambda before=before: jobs_in(back.store) >= before + 3)
            victim = random.randrange(len(submitters))
            submitters[victim].kill()
            submitters[victim].wait()
            submitters[victim] = started("submit", url, str(storage.root), str(rows))
        wait_for("submits", lambda: jobs_in(back.store) >= 20)
    finally:
        for process in submitters + collectors:
            process.kill()
            process.wait()
    for job in back.store.list_jobs(limit=10**6):
        copy = read_chunk_input(storage.job(job.folder), COPY, 0)
        assert copy["row_index"].to_pylist() == [0, 1, 2]


def jobs_in(store: Store) -> int:
    return len(store.list_jobs(limit=10**6))


@pytest.mark.quick
def test_one_orphan_that_stays_keeps_no_other(
    other: Store, storage: Storage, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    first, second = sorted([copied(storage).path, copied(storage).path])
    two_days_pass(storage)
    real = Storage.remove

    def refuse(self: Storage, relative: str) -> None:
        if relative == first.name:
            raise StorageUnavailable(f"cannot remove {first}", "the storage")
        real(self, relative)

    monkeypatch.setattr(Storage, "remove", refuse)
    keep_house(other, storage, None)
    assert (first.exists(), second.exists()) == (True, False)
    assert f"cannot remove {first}" in caplog.text
    monkeypatch.undo()
    keep_house(other, storage, None)
    assert not first.exists()


@pytest.mark.quick
def test_gc_tells_of_jobs_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine(tmp_path / "home", monkeypatch)
    known = cli.submit({"prompt": "a"})
    assert "does not know" not in cli("gc")[1]
    names = sorted(new_job_id() for _ in range(4))
    for name in names:
        assert cli.storage.new_job(name).mark(layout.SUBMITTED)
    out, said = cli("gc")
    assert out == ""
    assert f"4 folders of jobs that this database does not know: {names[0]}, " in said
    assert f"{names[2]}, …. They stay" in said
    assert set(job_folders(cli.storage)) == {known, *names}
