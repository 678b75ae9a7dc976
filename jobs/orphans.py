"""Folders in the storage that no job will ever need.

A `submit` that is killed between the copy of its input and the insert into SQL leaves one. That SQL
does not know a folder is not enough to remove it: its job may be in another database.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs import layout
from jobs.job_folder import JobFolder
from jobs.storage import Storage
from jobs.store import Store

SAFE_AGE_SECONDS = 24 * 3600.0  # a submit that reads a slow pipe writes now and then

_JOB_ID = re.compile(r"job_[a-z2-7]{20}")


def orphans(store: Store, storage: Storage) -> Iterator[str]:
    """Ids of jobs that are not there, and whose folders may be removed.

    Raises:
        StorageError: the storage cannot be read, or not written.
    """
    names = [name for name in storage.folders() if _JOB_ID.fullmatch(name)]
    unknown = sorted(set(names) - store.known_folders(names))
    if not unknown:
        return
    # A clock that jumped ahead makes nothing old.
    now = min(storage.now(), store.now().timestamp())
    for name in unknown:
        folder = storage.job(name)
        try:
            if _was_never_submitted(folder) and now - folder.newest() > SAFE_AGE_SECONDS:
                yield name
        except FileNotFoundError:
            continue  # somebody works in it, or removes it just now


def remove_orphan(store: Store, storage: Storage, job_id: str) -> bool:
    """Remove one; False if it is one no more.

    Raises:
        StorageError: it cannot be removed.
    """
    if store.known_folders([job_id]):
        return False
    storage.remove(job_id)
    return True


def _was_never_submitted(folder: JobFolder) -> bool:
    """Whether its job never was in any database, as far as one can tell."""
    return folder.entries() <= {layout.INPUT_FOLDER}
