"""Finalization: each row once and in order, whatever happens in between."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pyarrow.dataset as ds
import pytest

from jobs import finalize, garbage
from jobs.finalize import drive, finalize_job, merge_window
from jobs.job_folder import JobFolder
from jobs.manifest import describe
from jobs.records import Counts, MergeLease
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob, Window, add_job, sqlite_store

WINDOWS = [Window([[2, 0], [3]], rejected=[1]), Window([[5, 4]]), Window([], rejected=[6])]


@pytest.fixture
def hasty(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Store]:
    """A store whose leases run out at once."""
    with sqlite_store(migrated_sqlite, tmp_path, lease_seconds=0.05) as store:
        yield store


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "storage"))


def codes(rows: list[dict[str, Any]]) -> list[str | None]:
    return [row["error"] and row["error"]["code"] for row in rows]


def drive_to_end(job: PlayedJob) -> None:
    deadline = time.monotonic() + 30
    while not job.store.job(job.id).state.terminal:
        assert time.monotonic() < deadline
        drive(job.store, job.storage, "next")


def claimed(claim: Callable[[], MergeLease | None]) -> MergeLease:
    """A lease that another one may still be in the way of."""
    deadline = time.monotonic() + 30
    while (lease := claim()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return lease


def check_complete(job: PlayedJob) -> None:
    """All that holds of a job whose rows were all answered."""
    record = job.store.job(job.id)
    folder = job.storage.job(record.folder)
    rows = job.published()
    assert [row["row_index"] for row in rows] == list(range(7))
    assert codes(rows) == [None, "invalid_json", None, None, None, None, "invalid_json"]
    assert rows[5]["text"] == "answer 5"
    assert record.state is JobState.COMPLETED
    assert record.published_version == 1
    assert record.counts == Counts(5, 2, 0, 0, 20, 10, 15)
    assert folder.exists("v1/_SUCCESS")
    manifest = orjson.loads(folder.read("v1/_manifest.json"))
    assert [file["path"] for file in manifest["files"]] == [
        f"part-{number:05d}.parquet" for number in range(3)
    ]
    for file in manifest["files"]:
        content = folder.read(f"v1/{file['path']}")
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
        assert len(content) == file["bytes"]


def check_clean(job: PlayedJob) -> None:
    """Nothing is left that SQL does not name; hidden files count."""
    folder = job.storage.job(job.store.job(job.id).folder)
    parts = {chunk.part for chunk in job.store.chunks(job.id)}
    merged = {window.merged for window in job.store.windows(job.id)}
    left = {
        f"{name}/{p.name}" for name in ("_parts", "_windows") for p in folder.at(name).iterdir()
    }
    assert left == parts | merged | {f"{path}.json" for path in merged}
    assert list(folder.at("_spool").glob("*/*")) == []
    assert job.id not in dict(job.store.garbage())


@pytest.mark.quick
def test_a_finished_job_is_published(store: Store, storage: Storage) -> None:
    job = add_job(store, storage, WINDOWS)
    job.finish_all()

    assert drive(store, storage, "me") == 4

    check_complete(job)


@pytest.mark.quick
def test_dataset_readers_see_published_rows_only(store: Store, storage: Storage) -> None:
    job = add_job(store, storage, WINDOWS)
    job.finish_all()
    drive(store, storage, "me")

    folder = storage.job(job.id)
    assert ds.dataset(folder.at("v1"), format="parquet").count_rows() == 7
    assert ds.dataset(folder.path, format="parquet").count_rows() == 7


@pytest.mark.quick
def test_the_manifest_tells_what_the_version_is(store: Store, storage: Storage) -> None:
    job = add_job(store, storage, WINDOWS)
    job.failing = {3}
    job.finish_all()
    drive(store, storage, "me")

    manifest = orjson.loads(storage.job(job.id).read("v1/_manifest.json"))

    assert manifest["format"] == 1
    assert (manifest["job"], manifest["version"], manifest["model"]) == (job.id, 1, "the-model")
    assert manifest["rows"] == 7
    assert manifest["counts"]["completed"] == 4
    assert manifest["counts"]["failed"] == 3
    assert manifest["input"] == "/tmp/in.jsonl"
    assert manifest["stopped"] is None
    assert {"name": "topic", "type": "string", "nullable": True} in manifest["schema"]
    assert [file["rows"] for file in manifest["files"]] == [4, 2, 1]


@pytest.mark.quick
def test_a_window_is_merged_as_soon_as_its_chunks_are_done(store: Store, storage: Storage) -> None:
    job = add_job(store, storage, WINDOWS)
    job.finish(job.claim())
    job.finish(job.claim())

    assert drive(store, storage, "me") == 2  # the first window, and the one without chunks

    merged = [window.merged is not None for window in store.windows(job.id)]
    assert merged == [True, False, True]
    assert store.job(job.id).state is JobState.IN_PROGRESS
    job.finish_all()
    assert drive(store, storage, "me") == 2
    check_complete(job)


@pytest.mark.quick
def test_only_the_named_job_is_driven(store: Store, storage: Storage) -> None:
    jobs = [add_job(store, storage, WINDOWS) for _ in range(2)]
    for job in jobs:
        job.finish_all()

    drive(store, storage, "me", jobs[1].id)

    assert store.job(jobs[0].id).state is JobState.FINALIZING
    assert store.job(jobs[1].id).state is JobState.COMPLETED


@pytest.mark.quick
def test_a_cancelled_job_publishes_what_was_answered(store: Store, storage: Storage) -> None:
    job = add_job(store, storage, [Window([[2, 0], [3, 1], [4]])])
    job.finish(job.claim())
    lease = job.claim()
    job.spool(lease, [1])
    store.request_cancel(job.id, "cancelled")
    store.release_chunk(lease, Counts(completed=1))

    drive(store, storage, "me")

    record = store.job(job.id)
    assert record.state is JobState.CANCELLED
    assert record.counts == Counts(3, 0, 2, 0, 12, 6, 9)
    rows = job.published()
    assert codes(rows) == [None, None, None, "cancelled", "cancelled"]
    assert rows[3]["custom_id"] == "id-3"
    assert rows[3]["error"]["line"] == 4  # type: ignore[index]
    assert rows[3]["topic"] == "topic 0"


@pytest.mark.quick
def test_an_expired_job_says_so_in_its_rows(store: Store, storage: Storage) -> None:
    job = add_job(store, storage, [Window([[0], [1]])])
    job.finish(job.claim())
    store.request_cancel(job.id, "expired")

    drive(store, storage, "me")

    assert store.job(job.id).state is JobState.EXPIRED
    assert codes(job.published()) == [None, "expired"]
    assert store.job(job.id).counts.expired == 1


class Crash(BaseException):
    """The process dies."""


EFFECTS: list[tuple[type, str]] = [
    (JobFolder, "create"),
    (JobFolder, "create_once"),
    (JobFolder, "link"),
    (JobFolder, "remove"),
    (Store, "finish_window"),
    (Store, "finish_job"),
    (Store, "forget_garbage"),
]


def crash_at(patch: pytest.MonkeyPatch, number: int, after: bool) -> list[str]:
    """Die before or after the effect of that number; returns the effects that were reached."""
    reached: list[str] = []

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            reached.append(name)
            if len(reached) == number and not after:
                raise Crash
            result = real(*arguments)
            if len(reached) == number and after:
                raise Crash
            return result

        return call

    for owner, name in EFFECTS:
        patch.setattr(owner, name, wrapped(name, getattr(owner, name)))
    return reached


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_point_is_made_good_by_repeating(
    hasty: Store, storage: Storage, after: bool
) -> None:
    number, reached = 0, ["…"]
    while len(reached) >= number:
        number += 1
        job = add_job(hasty, storage, WINDOWS)
        lease = job.claim()
        job.spool(lease, job.rows_of(lease))
        job.finish(lease)
        job.finish_all()
        with pytest.MonkeyPatch.context() as patch:
            reached = crash_at(patch, number, after)
            try:
                drive(hasty, storage, "dies", job.id)
            except Crash:
                assert len(reached) == number
        drive_to_end(job)
        check_complete(job)
        drive(hasty, storage, "next", job.id)
        check_clean(job)

    assert set(reached) == {name for _, name in EFFECTS}
    assert number > 12


def test_a_twin_that_was_fenced_changes_nothing(hasty: Store, storage: Storage) -> None:
    job = add_job(hasty, storage, WINDOWS)
    job.finish_all()
    old = claimed(lambda: hasty.claim_window(job.id, 0, "old"))
    new = claimed(lambda: hasty.claim_window(job.id, 0, "new"))

    assert not merge_window(hasty, storage, old)
    assert merge_window(hasty, storage, new)
    assert not merge_window(hasty, storage, old)
    drive(hasty, storage, "me", job.id)
    check_complete(job)


def test_a_fenced_finalizer_publishes_the_same_bytes(hasty: Store, storage: Storage) -> None:
    job = add_job(hasty, storage, WINDOWS)
    job.finish_all()
    for window in range(3):
        lease = claimed(lambda window=window: hasty.claim_window(job.id, window, "me"))  # type: ignore[misc]
        assert merge_window(hasty, storage, lease)
    hasty.jobs_to_finalize()
    old = claimed(lambda: hasty.claim_finalization(job.id, "old"))
    new = claimed(lambda: hasty.claim_finalization(job.id, "new"))

    assert not finalize_job(hasty, storage, old)
    written = storage.job(job.id).read("v1/_manifest.json")
    assert finalize_job(hasty, storage, new)

    assert storage.job(job.id).read("v1/_manifest.json") == written
    check_complete(job)
    assert not finalize_job(hasty, storage, old)
    check_complete(job)


def test_many_finalizers_at_once(hasty: Store, storage: Storage) -> None:
    jobs = [add_job(hasty, storage, WINDOWS) for _ in range(4)]
    for job in jobs:
        job.finish_all()

    def work(number: int) -> None:
        for _ in range(6):
            drive(hasty, storage, f"finalizer {number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    for job in jobs:
        drive_to_end(job)
        check_complete(job)


def test_a_lease_is_renewed_while_a_long_merge_goes_on(
    migrated_sqlite: Path, tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = describe
    with sqlite_store(migrated_sqlite, tmp_path, lease_seconds=6) as store:
        job = add_job(store, storage, [Window([[0]])])
        job.finish_all()

        def slow(*arguments: Any) -> Any:
            deadline = time.monotonic() + 1.5 * store.lease_seconds
            while time.monotonic() < deadline:
                assert store.claim_window(job.id, 0, "thief") is None
                time.sleep(0.05)
            return real(*arguments)

        monkeypatch.setattr(finalize, "describe", slow)
        assert drive(store, storage, "me") == 2


@pytest.mark.quick
def test_a_missing_part_fails_the_job_and_no_other(
    store: Store, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = (add_job(store, storage, WINDOWS) for _ in range(2))
    for job in (broken, sound):
        job.finish_all()
    part = store.chunks(broken.id)[0].part
    assert part is not None
    storage.job(broken.id).remove(part)

    with caplog.at_level(logging.ERROR):
        drive(store, storage, "me")

    record = store.job(broken.id)
    assert record.state is JobState.FAILED
    assert record.error_code == "output_incomplete"
    assert "is missing" in (record.error_message or "")
    assert "is missing" in caplog.text
    check_complete(sound)


@pytest.mark.quick
def test_rows_that_do_not_add_up_fail_the_job(store: Store, storage: Storage) -> None:
    job = add_job(store, storage, [Window([[0, 1], [2]])])
    job.finish_all()
    folder = storage.job(job.id)
    two, one = (chunk.part for chunk in store.chunks(job.id))
    assert two is not None
    assert one is not None
    folder.at(one).write_bytes(folder.read(two))

    drive(store, storage, "me")

    message = store.job(job.id).error_message or ""
    assert "is there twice" in message
    assert two in message
    assert one in message


@pytest.mark.quick
def test_a_full_disk_is_tried_again(
    hasty: Store,
    storage: Storage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = add_job(hasty, storage, WINDOWS)
    job.finish_all()

    def full(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr("jobs.storage.os.replace", full)
        assert drive(hasty, storage, "me") == 0
    assert "No space left" in caplog.text
    assert not hasty.job(job.id).state.terminal

    drive_to_end(job)
    check_complete(job)


@pytest.mark.quick
def test_garbage_goes_and_what_is_named_stays(store: Store, storage: Storage) -> None:
    job = add_job(store, storage, [Window([[0, 1], [2]])])
    lease = job.claim()
    job.spool(lease, [0])
    folder = storage.job(job.id)
    for name in (f"_parts/{lease.chunk_id}-e9.parquet", "_windows/v1-w00000-e9.parquet"):
        with folder.create(name) as file:
            file.write(b"of a fenced worker")
    left_by_a_kill = folder.at(f"_parts/.{lease.chunk_id}-e1.parquet.0123abcd.tmp")
    left_by_a_kill.write_bytes(b"half")
    of_the_next_version = folder.at("_windows/v2-w00000-e1.parquet")
    of_the_next_version.write_bytes(b"not ours")
    job.finish(lease)
    job.finish_all()

    drive(store, storage, "me")

    assert not folder.exists("_spool/" + lease.chunk_id)
    assert folder.files("_parts") == [chunk.part for chunk in store.chunks(job.id)]
    assert not left_by_a_kill.exists()
    merged = store.windows(job.id)[0].merged
    assert folder.files("_windows") == [merged, f"{merged}.json", "_windows/v2-w00000-e1.parquet"]
    assert len(job.published()) == 3


@pytest.mark.quick
def test_nothing_is_collected_before_the_end(
    store: Store, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(store, storage, WINDOWS)
    job.finish_all()
    real = garbage.collect
    states: list[JobState] = []

    def watched(*arguments: Any) -> None:
        states.append(store.job(job.id).state)
        real(*arguments)

    monkeypatch.setattr(finalize, "collect", watched)
    drive(store, storage, "me")

    assert states == [JobState.COMPLETED]
