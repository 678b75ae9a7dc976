"""Whatever became of each row, a version holds each exactly once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import row_order
from jobs.finalize import drive
from jobs.records import Counts
from jobs.results import open_partial
from jobs.retry import plan_retry
from jobs.states import JobState
from jobs.storage import Storage
from tests.support.played_job import MODEL, PlayedJob, Window, add_job, sqlite_store

FATES = ("rejected", "answered", "failing")


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[Window], set[int]]:
    """Windows with their rows in any order, and the rows whose answer is an error."""
    windows: list[Window] = []
    failing: set[int] = set()
    first = 0
    for _ in range(draw(st.integers(1, 3))):
        fates = draw(st.lists(st.sampled_from(FATES), min_size=1, max_size=12))
        rows = range(first, first + len(fates))
        first += len(fates)
        rejected = [row for row, fate in zip(rows, fates, strict=True) if fate == "rejected"]
        failing |= {row for row, fate in zip(rows, fates, strict=True) if fate == "failing"}
        good = draw(st.permutations([row for row in rows if row not in rejected]))
        size = draw(st.integers(1, 5))
        chunks = [good[at : at + size] for at in range(0, len(good), size)]
        windows.append(Window(chunks, rejected))
    return windows, failing


def work_a_while(job: PlayedJob, data: st.DataObject) -> dict[int, str]:
    """Finish some chunks, spool some rows of others, then cancel; tells each row's outcome."""
    outcome: dict[int, str] = {}
    held = []
    while (lease := job.store.claim_chunk("w", MODEL)) is not None:
        rows = job.rows_of(lease)
        what = data.draw(st.sampled_from(["finish", "finish", "spool", "stop"]))
        if what == "finish":
            assert job.finish(lease)
            done = set(rows)
        else:
            done = set(data.draw(st.lists(st.sampled_from(rows), unique=True)))
            job.spool(lease, done)
            held.append(lease)
        for row in rows:
            outcome[row] = "open"
            if row in done:
                outcome[row] = "failed" if row in job.failing else "answered"
        if what == "stop":
            break
    _check_partial(job, outcome)
    if job.store.job(job.id).state != JobState.FINALIZING:
        job.store.request_cancel(job.id, "cancelled")
    for lease in held:
        assert job.store.release_chunk(lease, Counts())
    return outcome


def _check_partial(job: PlayedJob, outcome: dict[int, str]) -> None:
    """What `--partial` shows before the end: rows with an outcome, once and in order."""
    rows = [
        row["row_index"]
        for group in open_partial(job.store, job.storage, job.store.job(job.id)).groups()
        for row in group.to_pylist()
    ]
    assert rows == sorted(set(rows))
    done = {row for row, what in outcome.items() if what != "open"}
    assert done <= set(rows)
    assert not {row for row, what in outcome.items() if what == "open"} & set(rows)


def _check_version(
    job: PlayedJob, version: int, windows: list[Window], outcome: dict[int, str]
) -> None:
    rows = job.published(version)
    assert [row["row_index"] for row in rows] == list(range(len(rows)))
    assert len(rows) == sum(len(window.rows) for window in windows)
    rejected = {row for window in windows for row in window.rejected}
    codes = {"answered": None, "failed": "nan_logits", "open": "cancelled"}
    for row in rows:
        index = row["row_index"]
        assert isinstance(index, int)
        error = row["error"]
        code = error["code"] if isinstance(error, dict) else None
        expected = "invalid_json" if index in rejected else codes[outcome.get(index, "open")]
        assert (index, code) == (index, expected)
        assert row["text"] == (f"answer {index}" if code is None else None)
    counts = job.store.job(job.id).counts
    assert counts.rows == len(rows)
    assert counts.completed == sum(row["error"] is None for row in rows)


@settings(deadline=None, max_examples=20)
@given(split=jobs(), data=st.data())
def test_each_row_is_there_once_in_every_version(
    migrated_sqlite: Path,
    tmp_path_factory: pytest.TempPathFactory,
    split: tuple[list[Window], set[int]],
    data: st.DataObject,
) -> None:
    windows, failing = split
    folder = tmp_path_factory.mktemp("split")
    with (
        sqlite_store(migrated_sqlite, folder) as store,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(row_order, "GROUP_ROWS", data.draw(st.sampled_from([1, 3, 4096])))
        job = add_job(store, Storage(str(folder)), windows)
        job.failing = failing
        outcome = work_a_while(job, data)
        drive(store, job.storage, "me")
        _check_version(job, 1, windows, outcome)

        if all(what == "answered" for what in outcome.values()) and len(outcome) == sum(
            len(chunk) for window in windows for chunk in window.chunks
        ):
            return
        before = job.published(1)
        store.reopen(job.id, *plan_retry(store, job.storage, job.id))
        job.failing = (
            set(data.draw(st.lists(st.sampled_from(sorted(failing)), unique=True)))
            if failing
            else set()
        )
        answered = {row: what for row, what in outcome.items() if what == "answered"}
        outcome = answered | work_a_while(job, data)
        drive(store, job.storage, "me")
        _check_version(job, 2, windows, outcome)
        assert job.published(1) == before
