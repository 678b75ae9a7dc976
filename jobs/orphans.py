"""Folders in the storage that no job will ever need.

A `submit` that is killed while it copies its input leaves one. That SQL does not know a folder is
not enough to remove it: its job may be in another database. So a submit marks its folder before
it inserts the job, and a folder that bears the mark is never removed here. One without it is
taken first, in the place of the mark: a submit that stood still for a day, and goes on at this
very moment, either has its mark, or finds the place taken and inserts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs import layout
from jobs.errors import OutputError, StorageError
from jobs.job_folder import JobFolder
from jobs.storage import Storage
from jobs.store import Store

SAFE_AGE_SECONDS = 24 * 3600.0  # a submit that reads a slow pipe writes now and then

_JOB_ID = re.compile(r"job_[a-z2-7]{20}")


def claim_for_submit(folder: JobFolder, input_path: str) -> None:
    """Mark the folder of a job that is about to be inserted; from then on nobody removes it.

    Raises:
        StorageError: it was taken for an orphan meanwhile, or it cannot be written.
    """
    try:
        # An orphan's mark is removed after its input: who can mark it then misses that.
        if folder.mark(layout.SUBMITTED) and folder.exists(input_path):
            return
    except OutputError:  # not even the folder is there
        pass
    raise StorageError(
        f"the copy of the input in {folder.path} was removed: nothing was written to it for over "
        f"{SAFE_AGE_SECONDS / 3600:g} hours, which is what a killed submit looks like; nothing is "
        "queued, submit the file again"
    )


def orphans(store: Store, storage: Storage) -> Iterator[str]:
    """Ids of jobs that are not there, and whose folders may be removed.

    Raises:
        StorageError: the storage cannot be read, or not written.
    """
    names = _unknown(store, storage)
    if not names:
        return
    # A clock that jumped ahead makes nothing old.
    now = min(storage.now(), store.now().timestamp())
    for name in names:
        folder = storage.job(name)
        try:
            young = now - folder.newest() <= SAFE_AGE_SECONDS
            if _is_taken(folder) or (_holds_input_alone(folder) and not young):
                yield name
        except FileNotFoundError:
            continue  # somebody works in it, or removes it just now


def remove_orphan(store: Store, storage: Storage, job_id: str) -> bool:
    """Remove one; False if it is one no more.

    Raises:
        StorageError: it cannot be removed.
    """
    folder = storage.job(job_id)
    try:
        if store.known_folders([job_id]) or not folder.take(layout.SUBMITTED):
            return False
    except OutputError:  # it is gone, as others look for orphans too
        return False
    folder.remove(layout.INPUT_FOLDER)
    storage.remove(job_id)
    return True


def strangers(store: Store, storage: Storage) -> list[str]:
    """Folders of jobs that were submitted, perhaps, but not to this database.

    Their jobs are in another one that shares the storage; or their submit was killed between its
    mark and its insert, or the database is younger than they are.
    """
    return [name for name in _unknown(store, storage) if _is_marked(storage.job(name))]


def _unknown(store: Store, storage: Storage) -> list[str]:
    names = [name for name in storage.folders() if _JOB_ID.fullmatch(name)]
    return sorted(set(names) - store.known_folders(names))


def _holds_input_alone(folder: JobFolder) -> bool:
    """Whether its job never was in any database, as far as one can tell."""
    return folder.entries() <= {layout.INPUT_FOLDER}


def _is_marked(folder: JobFolder) -> bool:
    mark = folder.path / layout.SUBMITTED
    return mark.is_symlink() or mark.is_file()


def _is_taken(folder: JobFolder) -> bool:
    mark = folder.path / layout.SUBMITTED
    return mark.is_dir() and not mark.is_symlink()
