"""What must hold of the files of a job, at any moment and at its end."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pyarrow.parquet as pq

from jobs import layout
from jobs.storage import Storage
from jobs.store import Store


def check_never_ahead(store: Store, storage: Storage, job_id: str) -> None:
    """Every file that SQL names is there, and whole."""
    job = store.job(job_id)
    folder = storage.job(job.folder)
    with pq.ParquetFile(folder.at(layout.input_copy(job.version))) as copy:
        assert copy.num_row_groups == job.chunks_total
    for version in range(1, job.version + 1):
        for chunk in store.chunks(job_id, version):
            if chunk.part is not None:
                assert pq.read_table(folder.at(chunk.part)).num_rows == chunk.rows
        for window in store.windows(job_id, version):
            if window.merged is not None:
                assert pq.read_table(folder.at(window.merged)).num_rows == window.window.rows
                assert folder.exists(f"{window.merged}.json")
    for version in range(1, (job.published_version or 0) + 1):
        manifest = orjson.loads(folder.read(layout.manifest(version)))
        assert folder.exists(layout.success(version))
        assert sum(file["rows"] for file in manifest["files"]) == job.total_rows
        for file in manifest["files"]:
            content = folder.read(f"{layout.version_folder(version)}/{file['path']}")
            assert hashlib.sha256(content).hexdigest() == file["sha256"]


def check_clean(store: Store, storage: Storage, job_id: str) -> None:
    """Nothing is left in the folder of a job that has ended but what SQL names."""
    job = store.job(job_id)
    folder = storage.job(job.folder)
    named: set[str | None] = set()
    for version in range(1, job.version + 1):
        named.add(layout.input_copy(version))
        named.update(chunk.part for chunk in store.chunks(job_id, version))
        for window in store.windows(job_id, version):
            named |= {window.window.rejected, window.merged, f"{window.merged}.json"}
            named.add(layout.published_part(version, window.window.ordinal))
        named |= {layout.manifest(version), layout.success(version)}
    left = {str(path.relative_to(folder.path)) for path in _files(folder.path)}
    assert left - {layout.SUBMITTED} == named - {None}


def published(storage: Storage, folder: str) -> dict[str, str]:
    """The hash of every file of the versions that have a manifest."""
    return {
        str(path.relative_to(storage.root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for manifest in (storage.root / folder).glob("v*/_manifest.json")
        for path in _files(manifest.parent)
        if not path.name.startswith(".")
    }


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
