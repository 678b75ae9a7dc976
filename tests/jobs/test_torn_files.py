"""Files that a dead worker left torn, empty or twice: the chunk ends with the right rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.result_table import result_table
from jobs.spool import SpoolWriter, read_spool
from jobs.storage import Storage
from tests.support.dying_player import FINGERPRINT, play
from tests.support.on_disk import check_clean, check_never_ahead
from tests.support.played_job import Window, add_job, sqlite_store

CHUNK = [*range(0, 8, 2), *range(1, 8, 2)]


@settings(deadline=None, max_examples=25)
@given(
    cuts=st.lists(st.none() | st.integers(0, 10_000), min_size=3, max_size=3),
    doubled=st.sets(st.integers(0, 2)),
    empty_part=st.booleans(),
)
def test_whatever_is_left_of_a_spool_the_chunk_ends_right(
    migrated_sqlite: Path,
    tmp_path_factory: pytest.TempPathFactory,
    cuts: list[int | None],
    doubled: set[int],
    empty_part: bool,
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    with sqlite_store(migrated_sqlite, folder) as store:
        job = add_job(store, Storage(str(folder / "storage")), [Window([CHUNK])])
        lease = job.claim("dies")
        files = job.storage.job(job.id)
        spool = SpoolWriter(files, lease.chunk_id, lease.epoch, FINGERPRINT)
        for number in range(3):
            spool.write(result_table(job.answer(row) for row in CHUNK[2 * number : 2 * number + 2]))
        segments = [files.at(path) for path in files.files(f"_spool/{lease.chunk_id}")]
        for number, (segment, cut) in enumerate(zip(segments, cuts, strict=True)):
            if number in doubled:
                shutil.copy(segment, segment.with_name(f"e1-{number + 7:04d}.arrow"))
            if cut is not None:
                whole = segment.read_bytes()
                segment.write_bytes(whole[: cut % len(whole)])
        if empty_part:
            files.make_folder("_parts")
            files.at(f"_parts/.{lease.chunk_id}-e1.parquet.0123abcd.tmp").touch()
            files.at(f"_parts/{lease.chunk_id}-e1.parquet").touch()  # a name that SQL lacks

        adopted = read_spool(files, lease.chunk_id, FINGERPRINT)["row_index"].to_pylist()
        assert len(set(adopted)) == len(adopted)
        for number, cut in enumerate(cuts):
            if cut is None or number in doubled:
                assert set(CHUNK[2 * number : 2 * number + 2]) <= set(adopted)

        assert store.requeue_owned("dies") == 1
        play(job)
        assert [(row["row_index"], row["text"]) for row in job.published()] == [
            (row, f"answer {row}") for row in range(len(CHUNK))
        ]
        check_never_ahead(store, job.storage, job.id)
        check_clean(store, job.storage, job.id)
