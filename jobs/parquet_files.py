"""Opening the Parquet files of a job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import OutputError
from jobs.job_folder import JobFolder

# To read the footer of a copy of 10 million rows takes a third of a second; workers open the copy
# for each chunk that they claim.
_MANY_GROUPS = 512
_footer: tuple[tuple[str, int, int, int], pq.FileMetaData] | None = None


@contextlib.contextmanager
def open_parquet(folder: JobFolder, path: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of the job for reading.

    Raises:
        OutputError: it is missing or damaged (noticed when opened, or while it is read).
        StorageUnavailable: the storage could not be read.
    """
    full = folder.at(path)
    try:
        with _opened(full) as file:
            yield file
    except MemoryError:  # Arrow's own, too, which is one of its exceptions
        raise
    except (pa.ArrowException, OSError) as error:
        # A damaged page is an OSError without an errno; trouble of the disk has one.
        if isinstance(error, OSError) and error.errno is not None:
            raise folder.trouble("read", full, error) from error
        raise OutputError(f"{full} cannot be read: {error}") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Files never change, so a large footer is read once, and kept until another one is read."""
    global _footer
    found = path.stat()
    key = (str(path), found.st_ino, found.st_size, found.st_mtime_ns)
    kept = _footer
    known = kept[1] if kept is not None and kept[0] == key else None
    with pq.ParquetFile(path, metadata=known) as file:
        if file.num_row_groups >= _MANY_GROUPS:
            _footer = key, file.metadata
        yield file
