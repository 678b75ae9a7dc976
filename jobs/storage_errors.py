"""What an error of the file system means for the storage, and for those who wait for it."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from jobs.errors import OutputError, StorageUnavailable

MARKER = ".pagemill"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EEXIST})


def is_storage(root: Path) -> bool:
    """Whether a folder is a storage, and not the empty place where one has to be mounted."""
    try:
        # Those of an older pagemill have no marker.
        return (root / MARKER).is_file() or any(root.glob("job_*"))
    except OSError:
        return False


def trouble(
    action: str, path: Path, job: Path, root: Path, error: OSError
) -> StorageUnavailable | OutputError:
    """The error to raise in place of one of the file system.

    Args:
        action: such as `write`.
        job: the folder of the job that the path is of.
        root: of the storage.
    """
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return StorageUnavailable(
            f"cannot {action} {path}: the disk is full ({reason}); make room on it",
            f"room in the storage: the disk of {root} is full",
        )
    if error.errno in _REFUSED:
        return StorageUnavailable(
            f"cannot {action} {path}: {reason}; see that the folder in PAGEMILL_STORAGE_URL may be "
            "written",
            f"the storage: {root} cannot be written from {socket.gethostname()} ({reason})",
        )
    if error.errno in _NOT_THERE:
        return missing(path, job, root)
    return StorageUnavailable(
        f"cannot {action} {path}: {reason}",
        f"the storage: {root} fails on {socket.gethostname()} ({reason})",
    )


def missing(path: Path, job: Path, root: Path) -> StorageUnavailable | OutputError:
    """What it means that a file is not there: it was removed, or the whole storage is away."""
    if not is_storage(root):
        return away(root)
    if path.exists():
        return StorageUnavailable(
            f"{path} was not there for a moment; the storage {root} comes and goes",
            f"the storage: {root} comes and goes on {socket.gethostname()}",
        )
    gone = path if job.is_dir() else job
    return OutputError(f"{gone} is missing; something outside pagemill removed it")


def away(root: Path) -> StorageUnavailable:
    """The storage is not where it has to be."""
    return StorageUnavailable(
        f"the storage {root} is not there: {_what_is_there(root)}; mount it, or see that "
        "PAGEMILL_STORAGE_URL names the folder that the jobs were submitted to",
        f"the storage: {root} is not there on {socket.gethostname()}",
    )


def _what_is_there(root: Path) -> str:
    if root.is_dir():
        return f"the folder has no jobs and no file {MARKER}"
    return "there is something else of that name" if root.exists() else "there is no such folder"
