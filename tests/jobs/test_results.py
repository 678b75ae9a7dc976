"""Reading published and partial output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.errors import OutputError, OutputNotReady, StorageError
from jobs.finalize import drive
from jobs.job_folder import JobFolder
from jobs.results import OutputRows, open_partial, open_version
from jobs.retry import plan_retry
from jobs.schema import OUTPUT
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob, Window, add_job, sqlite_store


@pytest.fixture
def job(migrated_sqlite: Path, tmp_path: Path) -> Iterator[PlayedJob]:
    with sqlite_store(migrated_sqlite, tmp_path) as store:
        windows = [Window([[2, 0]], rejected=[1]), Window([[5, 4], [3]])]
        yield add_job(store, Storage(str(tmp_path)), windows)


def indices(rows: OutputRows) -> list[int]:
    return [i for group in rows.groups(["row_index"]) for i in group["row_index"].to_pylist()]


def partial(job: PlayedJob) -> OutputRows:
    return open_partial(job.store, job.storage, job.store.job(job.id))


def test_nothing_is_published_while_a_job_runs(job: PlayedJob) -> None:
    with pytest.raises(OutputNotReady, match="is queued and has published nothing yet"):
        open_version(job.storage, job.store.job(job.id))


def test_a_failed_job_says_why_it_has_no_results(job: PlayedJob) -> None:
    job.store.fail_job(job.id, "model_unavailable", "there is no model")

    with pytest.raises(OutputNotReady, match="there is no model"):
        open_version(job.storage, job.store.job(job.id))


def test_a_published_version_is_read_in_row_order(job: PlayedJob) -> None:
    job.finish_all()
    drive(job.store, job.storage, "me")

    version = open_version(job.storage, job.store.job(job.id))

    assert indices(version) == [0, 1, 2, 3, 4, 5]
    assert version.schema.names == [*OUTPUT.names, "topic"]
    assert next(version.groups()).schema.names == version.schema.names
    assert version.manifest["rows"] == 6
    assert version.path == job.storage.job(job.id).at("v1")


def test_a_version_that_is_not_there_is_refused(job: PlayedJob) -> None:
    job.finish_all()
    drive(job.store, job.storage, "me")

    for version in (0, 2):
        with pytest.raises(OutputNotReady, match=f"no version {version}; the newest is 1"):
            open_version(job.storage, job.store.job(job.id), version)


def test_partial_output_grows_with_the_job(job: PlayedJob) -> None:
    assert indices(partial(job)) == [1]  # refused at submit

    job.finish(job.claim())
    assert indices(partial(job)) == [0, 1, 2]

    lease = job.claim()
    job.spool(lease, [5])
    assert indices(partial(job)) == [0, 1, 2, 5]

    drive(job.store, job.storage, "me")  # merges the first window
    assert indices(partial(job)) == [0, 1, 2, 5]

    job.finish(lease)
    job.finish_all()
    assert indices(partial(job)) == [0, 1, 2, 3, 4, 5]
    drive(job.store, job.storage, "me")
    assert indices(partial(job)) == [0, 1, 2, 3, 4, 5]


def test_partial_output_of_a_retry_shows_new_answers_and_none_of_the_old_errors(
    job: PlayedJob,
) -> None:
    job.failing = {0, 5}
    job.finish_all()
    drive(job.store, job.storage, "me")
    job.store.reopen(job.id, *plan_retry(job.store, job.storage, job.id))

    assert indices(partial(job)) == [1, 2, 3, 4]
    assert len(indices(open_version(job.storage, job.store.job(job.id)))) == 6


@pytest.mark.parametrize("moment", ["windows", "files", "open"])
def test_no_row_vanishes_from_partial_output_when_the_job_ends_meanwhile(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The spool that it is about to read is removed then."""
    lease = job.claim()
    job.spool(lease, job.rows_of(lease))
    place = Store if moment == "windows" else JobFolder
    real, ends = getattr(place, moment), [True]

    def call(self: Any, *arguments: Any) -> Any:
        found = real(self, *arguments)
        spools = moment == "windows" or str(arguments[0]).startswith("_spool/")
        if spools and ends and ends.pop():
            job.finish(lease)
            job.finish_all()
            drive(job.store, job.storage, "me")
            assert not job.storage.job(job.id).exists(f"_spool/{lease.chunk_id}")
        return found

    rows = partial(job)
    monkeypatch.setattr(place, moment, call)
    assert indices(rows) == [0, 1, 2, 3, 4, 5]
    assert not ends


def test_partial_output_of_a_failed_job_is_what_was_finished(
    job: PlayedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.finish(job.claim())
    job.store.fail_job(job.id, "worker_failed", "it broke")

    assert indices(partial(job)) == [0, 1, 2]


def test_a_version_of_before_a_column_was_known_has_null_there(job: PlayedJob) -> None:
    job.finish_all()
    drive(job.store, job.storage, "me")
    known = open_version(job.storage, job.store.job(job.id))
    for path in known.path.glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["endpoint", "choices", "logprobs"]), path)

    for columns in (None, ["row_index", "endpoint", "choices"]):
        for group in known.groups(columns):
            assert group.schema.names == (columns or known.schema.names)
            assert group["endpoint"].null_count == group["choices"].null_count == group.num_rows
    assert indices(known) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "change",
    [
        *({"path": path} for path in ("../v2/x", "/etc/passwd", "a/b", "..", "", 5, None, "a\0b")),
        *({"files": files} for files in (None, 5, [5], [{}], [None], "x", {"a": 1})),
    ],
)
def test_a_manifest_that_was_tampered_with_leads_nowhere(
    job: PlayedJob, change: dict[str, Any]
) -> None:
    job.finish_all()
    drive(job.store, job.storage, "me")
    path = job.storage.job(job.id).at("v1/_manifest.json")
    content = json.loads(path.read_text())
    entry = content["files"][0]
    path.unlink()
    path.write_text(json.dumps(content | {"files": [entry | change], **change}))
    with pytest.raises((OutputError, StorageError), match=r"none of its folder|not a path below"):
        indices(open_version(job.storage, job.store.job(job.id)))
