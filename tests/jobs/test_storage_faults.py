"""A storage that is full, read-only or away: nothing is lost, nothing is published by half."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from jobs import layout
from jobs.errors import DatabaseUnavailable, OutputError, StorageUnavailable
from jobs.finalize import drive, merge_window
from jobs.parquet_files import open_parquet
from jobs.result_table import result_table
from jobs.spool import SpoolWriter, read_spool
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from tests.support.on_disk import check_clean, check_never_ahead
from tests.support.played_job import PlayedJob, Window, add_job, sqlite_store
from tests.support.sick_disk import SickDisk, ways

WINDOWS = [Window([[2, 0], [3]], rejected=[1]), Window([[5, 4]]), Window([], rejected=[6])]
FAULTS = [(way, kind) for way in ways() for kind in ("full", "read-only")] + [("away", "away")]
SAID = {
    "full": "room in the storage: the disk of ",
    "read-only": "the storage: .* cannot be written",
    "away": "the storage: .* is not there",
}
Ill = Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=FAULTS, ids=["-".join(fault) for fault in FAULTS])
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str, Ill]]:
    """A folder for the storage, a kind of fault, and what brings it about for a while."""
    way, kind = request.param
    if way == "away":
        yield tmp_path / "storage", kind, lambda: away(tmp_path / "storage")
        return
    with SickDisk(tmp_path / "storage", way).prepared() as disk:
        yield disk.folder, kind, lambda: disk.sick(kind)


@contextmanager
def away(root: Path) -> Iterator[None]:
    """Not mounted: its mount point is an empty folder, in which nothing may be written."""
    elsewhere = root.with_name("elsewhere")
    root.rename(elsewhere)
    root.mkdir()
    yield
    assert list(root.rglob("*")) == []
    root.rmdir()
    elsewhere.rename(root)


@pytest.fixture
def hasty(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Store]:
    with sqlite_store(migrated_sqlite, tmp_path, lease_seconds=0.05) as store:
        yield store


def to_the_end(job: PlayedJob) -> None:
    deadline = time.monotonic() + 60
    while not job.store.job(job.id).state.terminal or job.store.garbage():
        assert time.monotonic() < deadline
        drive(job.store, job.storage, "next")


@pytest.mark.parametrize("merged", [False, True], ids=["merging", "publishing"])
def test_a_job_that_is_being_finished_waits(
    hasty: Store, fault: tuple[Path, str, Ill], merged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    root, kind, ill = fault
    job = add_job(hasty, Storage(str(root)), WINDOWS)
    if merged:
        lease = job.claim()
        drive(hasty, job.storage, "me")  # the window without chunks
        job.finish(lease)
        job.finish_all()
        for window in (0, 1):
            merge = hasty.claim_window(job.id, window, "me")
            assert merge is not None
            merge_window(hasty, job.storage, merge)
    else:
        job.finish_all()

    with ill(), caplog.at_level(logging.WARNING):
        for _ in range(3):
            drive(hasty, job.storage, "me")
            time.sleep(0.06)
        record = hasty.job(job.id)
        assert not record.state.terminal
        assert record.published_version is None
    assert record.waiting_for is not None
    assert re.match(SAID[kind], record.waiting_for)
    assert "will be tried again" in caplog.text

    to_the_end(job)
    record = hasty.job(job.id)
    assert (record.state, record.waiting_for) == (JobState.COMPLETED, None)
    assert [row["row_index"] for row in job.published()] == list(range(7))
    check_never_ahead(hasty, job.storage, job.id)
    check_clean(hasty, job.storage, job.id)


def test_garbage_waits_for_its_storage(hasty: Store, fault: tuple[Path, str, Ill]) -> None:
    root, kind, ill = fault
    job = add_job(hasty, Storage(str(root)), WINDOWS)
    lease = job.claim()
    job.spool(lease, job.rows_of(lease))
    job.finish(lease)
    job.finish_all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.finalize.remove_garbage", lambda *_: None)
        deadline = time.monotonic() + 60
        while not hasty.job(job.id).state.terminal:
            assert time.monotonic() < deadline
            drive(hasty, job.storage, "me")

    if kind == "away":  # a full disk takes nothing, but lets go
        with ill():
            drive(hasty, job.storage, "me")
            assert hasty.garbage() == [(job.id, 1)]

    drive(hasty, job.storage, "me")
    check_clean(hasty, job.storage, job.id)
    assert hasty.garbage() == []


def test_a_segment_that_was_refused_is_written_later(fault: tuple[Path, str, Ill]) -> None:
    root, _, ill = fault
    storage = Storage(str(root))
    folder = storage.new_job("job")
    spool = SpoolWriter(folder, "c", 1, "f")
    job = PlayedJob(None, storage, "job")  # type: ignore[arg-type]
    spool.write(result_table([job.answer(0)]))

    for _ in range(2):
        with ill(), pytest.raises(StorageUnavailable):
            spool.write(result_table([job.answer(1)]))
    spool.write(result_table([job.answer(1)]))

    assert read_spool(folder, "c", "f")["row_index"].to_pylist() == [0, 1]
    assert sorted(path.name for path in folder.at("_spool/c").iterdir()) == [
        "e1-0000.arrow",
        "e1-0001.arrow",
    ]


@pytest.mark.quick
def test_a_storage_that_is_away_is_not_an_empty_one(tmp_path: Path) -> None:
    root = tmp_path / "storage"
    folder = Storage(str(root)).new_job("job")
    SpoolWriter(folder, "c", 1, "f").write(
        result_table([PlayedJob(None, Storage(str(root)), "job").answer(0)])  # type: ignore[arg-type]
    )
    with away(root):
        for reading in (
            lambda: read_spool(folder, "c", "f"),
            lambda: folder.files("_spool/c"),
            lambda: folder.read("v1/_manifest.json"),
            lambda: folder.size("v1/_manifest.json"),
            lambda: open_parquet(folder, layout.input_copy(1)).__enter__(),
            lambda: folder.make_folder("_windows"),
            lambda: folder.create_once("v1/_SUCCESS", b""),
            lambda: folder.link("a", "b"),
            lambda: Storage(str(root)).new_job("other", in_use=True),
        ):
            with pytest.raises(StorageUnavailable, match="is not there"):
                reading()
    assert read_spool(folder, "c", "f").num_rows == 1


@pytest.mark.quick
def test_a_database_without_room_is_waited_for(hasty: Store) -> None:
    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # as many as there are
        connection.exec_driver_sql("CREATE TABLE filler AS SELECT zeroblob(1000000) AS x")

    with pytest.raises(DatabaseUnavailable, match="is full; make room on its disk"):
        hasty._database.transact(fill)


@pytest.mark.quick
def test_a_file_that_was_removed_is_not_waited_for(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "storage"))
    folder = storage.new_job("job")
    with pytest.raises(OutputError, match=r"v1/_SUCCESS is missing; something outside pagemill"):
        folder.read("v1/_SUCCESS")
    folder.remove_all()
    with pytest.raises(OutputError, match=r"storage/job is missing; something outside pagemill"):
        folder.read("v1/_SUCCESS")


@pytest.mark.quick
def test_the_first_job_makes_the_storage_and_the_next_ones_ask_for_it(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "a" / "storage"))
    with pytest.raises(StorageUnavailable, match="there is no such folder"):
        storage.new_job("one", in_use=True)
    storage.new_job("job_1")
    storage.new_job("job_2", in_use=True)
    (storage.root / ".pagemill").unlink()
    storage.check()  # one of an older pagemill: it has jobs whose names tell
