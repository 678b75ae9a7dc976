"""The deployment that a command works on."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.cli.console import note
from jobs.errors import BrokerError, DatabaseError

if TYPE_CHECKING:
    from jobs.settings import Settings
    from jobs.storage import Storage
    from jobs.store import Store


@dataclass(frozen=True, slots=True)
class Deployment:
    settings: Settings
    store: Store
    storage: Storage

    @property
    def owner(self) -> str:
        """Who we are, where a lease is taken."""
        return f"cli:{socket.gethostname()}:{os.getpid()}"

    def settle(self, job_id: str) -> None:
        """Do what a sweeper would do for a job, so that its end needs no living worker."""
        from jobs import finalize
        from jobs.sweep import mend

        mend(self.store)
        finalize.drive(self.store, self.storage, self.owner, job_id)

    def wake(self, model: str, lost: bool = False) -> None:
        """Send the first wake-ups for queued chunks; the sweepers of the workers send the rest.

        Args:
            lost: those that were sent so far brought nothing.
        """
        if not self.settings.has_broker:
            return
        from jobs.wake import wake_workers

        try:
            wake_workers(
                self.settings,
                model,
                lambda limit: self.store.chunks_to_wake(limit, model=model, lost=lost),
            )
        except (BrokerError, DatabaseError) as error:
            note(
                f"Workers could not be woken: {error}. The job is queued all the same; they look "
                "into the database every few seconds and will find it."
            )


@contextlib.contextmanager
def opened(create: bool = False) -> Iterator[Deployment]:
    """Open the deployment that the environment names.

    Args:
        create: make or upgrade the database, if it is the default one.

    Raises:
        DatabaseError: the database is missing, or of another version.
    """
    from jobs.database import Database, upgrade
    from jobs.settings import Settings
    from jobs.storage import Storage
    from jobs.store import Store

    settings = Settings.from_env()
    storage = Storage(settings.storage_url)
    database = Database(settings.database_url, on_wait=tell_of_wait)
    try:
        try:
            database.check_revision()
        except DatabaseError:
            if not (create and settings.default_database):
                raise
            upgrade(settings.database_url, tell_of_wait)
            database.check_revision()
        store = Store(database, lease_seconds=settings.lease_seconds)
        yield Deployment(settings, store, storage)
    finally:
        database.close()


def tell_of_wait(error: DatabaseError) -> None:
    """Say on stderr what a command waits for."""
    note(f"Waiting for the {error}")


def model_name(given: str) -> str:
    """A model as workers and jobs name it: a local path becomes absolute.

    A job is answered by workers of the very same name, wherever they were started. What can
    only be a path is one even if nothing lies there: a worker elsewhere may have it.
    """
    path = Path(given).expanduser()
    return str(path.absolute()) if path.exists() or _is_path(given) else given


def _is_path(model: str) -> bool:
    """Whether it cannot be a hub id or a known name."""
    return model.startswith(("./", "../", "/", "~")) or model.lower().endswith(".gguf")
