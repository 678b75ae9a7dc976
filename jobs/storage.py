"""The storage: the folder of all job folders, on a file system that all processes reach."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jobs.errors import StorageUnusable
from jobs.files import below, discard, make_folder, remove
from jobs.job_folder import JobFolder
from jobs.storage_errors import MARKER, away, is_storage, trouble

_CURE = (
    "name a folder, or file:///path, on a disk that all workers reach (where they are on several "
    "machines, a network file system)"
)


class Storage:
    """The root of all job folders, on a file system that every process of a deployment reaches.

    Args:
        url: a path or a `file://` URL.

    Raises:
        StorageUnusable: the URL names something else.
    """

    def __init__(self, url: str) -> None:
        self.root = _local_path(url)

    def job(self, folder: str) -> JobFolder:
        """The folder of one job; `folder` is relative to the root and stays below it."""
        return JobFolder(below(self.root, folder), self.root)

    def check(self) -> None:
        """See that the storage is there.

        Raises:
            StorageUnavailable: it is not; that may pass.
        """
        if not is_storage(self.root):
            raise away(self.root)

    def folders(self) -> list[str]:
        """The names of all folders in it, ours or not; none where it is not there.

        Raises:
            StorageUnavailable: it cannot be read.
        """
        if not is_storage(self.root):
            return []
        try:
            with os.scandir(self.root) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except OSError as error:
            raise trouble("read", self.root, self.root, self.root, error) from error

    def now(self) -> float:
        """The time by the clock that the ages of its files go by (seconds since 1970).

        Raises:
            StorageUnavailable: it cannot be written.
        """
        probe = self.root / f".clock.{uuid.uuid4().hex[:8]}.tmp"
        try:
            probe.touch()
            return probe.stat().st_mtime
        except OSError as error:
            raise trouble("write", probe, self.root, self.root, error) from error
        finally:
            discard(probe)

    def new_job(self, folder: str, *, in_use: bool = False) -> JobFolder:
        """Make the folder of a job, which is done nowhere else; the first one makes the storage.

        Args:
            in_use: there are jobs, so the storage has to be there: what lies where it has to be
                mounted is another disk, and what is written to that is lost once it is mounted.

        Raises:
            StorageUnavailable: the storage is not there, or cannot be written.
        """
        if in_use:
            self.check()
        job, marker = self.job(folder), self.root / MARKER
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not marker.exists():
                marker.write_text("The files of pagemill's jobs; see docs/operations.md.\n")
            make_folder(job.path)
        except OSError as error:
            raise job.trouble("make", job.path, error) from error
        return job

    def remove(self, relative: str) -> None:
        """Remove a file, or a folder with all that is in it, and be sure that it is gone.

        Raises:
            StorageUnavailable: the storage is not there, and may come back with all that was in
                it; or some of it cannot be removed.
        """
        self.check()
        path = below(self.root, relative)
        try:
            remove(path)
        except OSError as error:
            raise trouble("remove", path, path, self.root, error) from error


def _local_path(url: str) -> Path:
    parts = urlsplit(url)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        raise StorageUnusable(
            f"PAGEMILL_STORAGE_URL is {parts.scheme}://…, and jobs are kept in folders only",
            f"{_CURE}; only inputs may lie in an object store",
        )
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise StorageUnusable(
            f"PAGEMILL_STORAGE_URL is file://{parts.netloc}/…, which names a host", _CURE
        )
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(url)
    return path.expanduser().absolute()
