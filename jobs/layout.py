"""Where everything lies in a job's folder.

    <storage>/<job id>/
        _submitted                     the job is in SQL, or was about to be (see `jobs.orphans`)
        _input/v1.parquet              the normalized copy: one row group a chunk
        _input/v1-rejected-w00000.parquet   rows of a window that were refused at submit
        _spool/<chunk id>/e3-0007.arrow     finished rows of a running chunk, by lease epoch
        _spool/<chunk id>/e3.json           which of its rows may have killed a worker
        _parts/<chunk id>-e3.parquet        a finished chunk
        _windows/v1-w00000-e1.parquet       a merged window, not yet published
        _windows/v1-w00000-e1.parquet.json  its rows, counts and hash, for the manifest
        v1/part-00000.parquet, …            the published version: immutable
        v1/_manifest.json                   written last: what the version consists of
        v1/_SUCCESS

Dataset readers (pyarrow, Spark, DuckDB's globs) pass over names that start with `_`, so
whoever opens the folder of a version sees only published rows. SQL stores these paths
relative to the job's folder.
"""

from __future__ import annotations

MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"
SUBMITTED = "_submitted"
INPUT_FOLDER = "_input"


def run_log(job_id: str) -> str:
    """Where the worker of `pagemill run` logs; relative to the storage, unlike all others."""
    return f"logs/{job_id}.log"


def input_copy(version: int) -> str:
    return f"{INPUT_FOLDER}/v{version}.parquet"


def rejected_part(version: int, window: int) -> str:
    return f"{INPUT_FOLDER}/v{version}-rejected-w{window:05d}.parquet"


def spool_folder(chunk_id: str) -> str:
    return f"_spool/{chunk_id}"


def spool_segment(chunk_id: str, epoch: int, number: int) -> str:
    return f"{spool_folder(chunk_id)}/e{epoch}-{number:04d}.arrow"


def trials(chunk_id: str, epoch: int) -> str:
    return f"{spool_folder(chunk_id)}/e{epoch}.json"


def part(chunk_id: str, epoch: int) -> str:
    return f"_parts/{chunk_id}-e{epoch}.parquet"


def merged_window(version: int, window: int, epoch: int) -> str:
    return f"_windows/v{version}-w{window:05d}-e{epoch}.parquet"


def version_folder(version: int) -> str:
    return f"v{version}"


def published_part(version: int, window: int) -> str:
    return f"{version_folder(version)}/part-{window:05d}.parquet"


def manifest(version: int) -> str:
    return f"{version_folder(version)}/{MANIFEST}"


def success(version: int) -> str:
    return f"{version_folder(version)}/{SUCCESS}"
