"""A process that drives evaluations, up to the point at which it dies.

python -m tests.support.dying_driver DATABASE_URL STORAGE POINT [EVALUATION]

Of an evaluation that is named it makes the scores again.
"""

from __future__ import annotations

import subprocess
import sys

from jobs.cli.deployment import Deployment
from jobs.database import Database
from jobs.evaluation.rescoring import rescored
from jobs.evaluation.runs import drive
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store
from tests.support.crash_points import POINTS, ROOT, arm

LEASE_SECONDS = 0.5


def killed_at(point: str, database_url: str, storage: Storage, *again: str) -> None:
    """Drive in a process of its own, and see that it dies at the point."""
    arguments = (database_url, str(storage.root), point, *again)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.dying_driver", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == -9, f"{point} was not met\n{done.stdout}{done.stderr}"


def main() -> None:
    database_url, storage, point, *again = sys.argv[1:]
    store = Store(Database(database_url), lease_seconds=LEASE_SECONDS)
    arm(POINTS[point])
    for id in again:
        rescored(Deployment(Settings.from_env(), store, Storage(storage)), id, lambda _: False)
    while drive(store, Storage(storage), Settings.from_env(), "dies"):
        pass


if __name__ == "__main__":
    main()
