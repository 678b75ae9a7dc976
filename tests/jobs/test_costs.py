"""What the end of a large job costs: each file is read once, however many chunks there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import finalize, layout, parquet_files
from jobs.finished_rows import FinishedRows
from jobs.row_set import RowSet
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob, Window, add_job

pytestmark = pytest.mark.quick


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each Parquet file of a job was opened, by its name."""
    names: Counter[str] = Counter()
    open_file = pq.ParquetFile

    def counted(path: Path, metadata: pq.FileMetaData | None) -> pq.ParquetFile:
        if metadata is None:
            names[path.name] += 1
        return open_file(path, metadata=metadata)

    monkeypatch.setattr(parquet_files.pq, "ParquetFile", counted)
    return names


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "storage"))


def jobs_of(store: Store, storage: Storage) -> Iterator[tuple[PlayedJob, int]]:
    """A small job and a larger one, of one window each, with their rows."""
    for chunks in (2, 20):
        rows = range(chunks * 2)
        yield add_job(store, storage, [Window([rows[n : n + 2] for n in rows[::2]])]), len(rows)


def copy_name() -> str:
    return layout.input_copy(1).rpartition("/")[2]


def test_the_copy_of_a_stopped_job_is_not_opened_for_each_chunk(
    store: Store, storage: Storage, opened: Counter[str]
) -> None:
    found = []
    for job, rows in jobs_of(store, storage):
        store.request_cancel(job.id)
        opened.clear()

        finalize.drive(store, storage, "worker")

        found.append(opened[copy_name()])
        assert store.job(job.id).counts.cancelled == rows
    assert found[0] == found[1] > 0


def test_the_rows_of_a_stopped_job_are_told_without_opening_its_copy_for_each_chunk(
    store: Store, storage: Storage, opened: Counter[str]
) -> None:
    found = []
    for job, rows in jobs_of(store, storage):
        told = FinishedRows(store, storage, store.job(job.id))
        store.request_cancel(job.id)
        finalize.drive(store, storage, "worker")
        opened.clear()

        last = list(told.last())

        found.append(opened[copy_name()])
        assert sum(table.num_rows for table in last) == rows
    assert found[0] == found[1] > 0


def test_the_footer_of_a_large_copy_is_read_once(
    store: Store, storage: Storage, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "_MANY_GROUPS", 10)
    monkeypatch.setattr(parquet_files, "_footer", None)
    found = []
    for job, rows in jobs_of(store, storage):
        opened.clear()

        job.finish_all()

        found.append(opened[copy_name()])
        assert store.job(job.id).counts.completed == rows
    assert found == [4, 1], "that of the small one is read for each chunk, twice by its player"


def test_a_copy_that_is_another_one_is_read_anew(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "_MANY_GROUPS", 1)
    folder = storage.new_job("job_1")
    for text in ("a", "b"):
        with folder.create("x.parquet") as file:
            pq.write_table(pa.table({"text": [text]}), file)
        with parquet_files.open_parquet(folder, "x.parquet") as opened_file:
            assert opened_file.read()["text"].to_pylist() == [text]


def test_a_set_of_rows_is_as_large_as_the_job_and_no_larger() -> None:
    rows = RowSet(10)
    assert not len(rows)
    rows.add([3, 7])
    rows.add([7])
    table = pa.table({"row_index": [9, 7, 0, 3], "text": ["a", "b", "c", "d"]})

    assert len(rows) == 2
    assert rows.of(table).to_pydict() == {"row_index": [7, 3], "text": ["b", "d"]}
    assert rows.of(table.slice(0, 0)).num_rows == 0
