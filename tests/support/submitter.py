"""A process that submits again and again, or collects orphans, until it is killed.

    python -m tests.support.submitter submit DATABASE_URL STORAGE INPUT
    python -m tests.support.submitter collect DATABASE_URL STORAGE

Here a folder is an orphan at once, so that every submit is in a race with the collectors.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time

from jobs import orphans
from jobs.database import Database
from jobs.errors import JobsError
from jobs.storage import Storage
from jobs.store import Store
from jobs.submission import Submission, prepare
from tests.support.crash_points import ROOT


def started(what: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.submitter", what, *arguments]
    return subprocess.Popen(command, cwd=ROOT)


def submit(store: Store, storage: Storage, path: str) -> None:
    """As the command does it."""
    new = prepare(Submission(path, "m"), storage)
    orphans.claim_for_submit(storage.job(new.folder), new.plan.input_path)
    store.insert_job(new)


def collect(store: Store, storage: Storage) -> None:
    for name in orphans.orphans(store, storage):
        orphans.remove_orphan(store, storage, name)


def main() -> None:
    what, database_url, root, *rest = sys.argv[1:]
    store, storage = Store(Database(database_url)), Storage(root)
    orphans.SAFE_AGE_SECONDS = -1.0
    while True:
        try:
            if what == "submit":
                submit(store, storage, rest[0])
            else:
                collect(store, storage)
                time.sleep(random.uniform(0, 0.3))  # in which some submits get through
        except JobsError:
            continue  # another process took its folder, or works in it


if __name__ == "__main__":
    main()
