"""The storage: is it there, does it keep what is written, and is there room?"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from jobs.doctor.disks import existing, room
from jobs.doctor.findings import Finding, fault, warning, well
from jobs.files import discard, sync_folder
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.storage_errors import is_storage, trouble

ADVICE = (
    "see that the disk of PAGEMILL_STORAGE_URL is mounted and well (`df -h`, `dmesg`), and that "
    "this user may write there"
)
_SLOW_SECONDS = 1.0
_MAKE_ROOM = "make room on it; `pagemill gc --dry-run` and `pagemill list` tell what may go"


def check_storage(settings: Settings) -> Iterator[Finding]:
    """Whether the storage can be worked with.

    Raises:
        StorageError: its URL names none that can work, or it cannot be written.
    """
    root = Storage(settings.storage_url).root
    if not root.is_dir() and root.exists():
        yield fault("storage", f"{root} is no folder", "name a folder in PAGEMILL_STORAGE_URL")
        return
    if not root.exists():
        yield _not_there(root)
        return
    seconds = _write_and_rename(root)
    free, no_room = room("storage", root, _MAKE_ROOM)
    if no_room:
        yield no_room
    elif seconds > _SLOW_SECONDS:
        yield warning(
            "storage",
            f"{root} takes {seconds:.1f} s to write and rename one small file",
            "workers write every few seconds; use a faster disk, or look what else loads it",
        )
    elif not is_storage(root):
        yield warning(
            "storage",
            f"{root} can be written and is empty of jobs, {free}",
            "that is so before the first submit; if there were jobs, the disk that holds them is "
            "not mounted there",
        )
    else:
        yield well("storage", f"{root}: written, flushed and renamed a file, {free}")


def _not_there(root: Path) -> Finding:
    above = existing(root)
    if not os.access(above, os.W_OK | os.X_OK):
        return fault(
            "storage",
            f"there is no folder {root}, and {above} may not be written",
            "make it, or change the permissions, or set PAGEMILL_STORAGE_URL",
        )
    return warning(
        "storage",
        f"there is no folder {root} yet",
        "the first submit makes it; if there were jobs, mount the disk that holds them",
    )


def _write_and_rename(root: Path) -> float:
    """Do to a file what is done to each part of a job; returns how long it took.

    Raises:
        StorageError: it failed.
    """
    name = f".doctor.{uuid.uuid4().hex[:8]}"
    temporary, final = root / f"{name}.tmp", root / f"{name}.txt"
    began = time.monotonic()
    try:
        with open(temporary, "xb") as file:
            file.write(b"Written by `pagemill doctor`; may be removed.\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, final)
        sync_folder(root)
        final.read_bytes()
    except OSError as error:
        raise trouble("write", temporary, root, root, error) from error
    finally:
        discard(temporary)
        discard(final)
    return time.monotonic() - began
