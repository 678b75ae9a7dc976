"""The deployment that a command works on."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.cli.console import note
from jobs.errors import BrokerError, DatabaseError

if TYPE_CHECKING:
    from jobs.records import JobRecord
    from jobs.records.evaluations import EvaluationRecord, NotificationRecord
    from jobs.settings import Settings
    from jobs.storage import Storage
    from jobs.store import Store


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where jobs are kept, and how its user is told of what goes on.

    Attributes:
        tell: takes a sentence.
    """

    settings: Settings
    store: Store
    storage: Storage
    tell: Callable[[str], None] = note

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

    def tell_urls(self, job: JobRecord) -> None:
        """Tell the end of a job to its URLs, if nobody has; whatever comes of it is only told.

        Who goes on with those that do not take it is a beat, or a worker.
        """
        from jobs.store.notifications import subject_of

        if job.notify_urls:
            self._tell_urls(
                "job", job.id, subject_of(job), lambda: self.store.progress(job.id).notifications
            )

    def tell_urls_of_evaluation(self, evaluation: EvaluationRecord) -> None:
        """`tell_urls`, of an evaluation that has ended."""
        if evaluation.spec.get("notify"):
            id = evaluation.id
            self._tell_urls("evaluation", id, id, lambda: self.store.notifications(id))

    def _tell_urls(
        self,
        kind: str,
        about: str,
        subject: str,
        notifications: Callable[[], Sequence[NotificationRecord]],
    ) -> None:
        from jobs.notifications.delivering import Deliverer
        from jobs.shown_urls import shown_webhook

        try:
            Deliverer(self.settings, self.store, self.storage).deliver_due(subject)
            told = notifications()
        except Exception as error:  # what was done is done, whatever this comes to
            self.tell(f"The end of {kind} {about} could not be told to its URLs: {error}")
            return
        for one in told:
            if one.error is not None:
                self.tell(
                    f"{shown_webhook(one.url)} has not taken the notification {one.id}: "
                    f"{one.error}; `pagemill notifications {about}` shows what becomes of it"
                )

    def doubt_of(self, model: str, *, here: bool = False) -> str | None:
        """Why perhaps no worker will find a model, for a warning; None if nothing says so.

        Args:
            here: a worker is started on this machine. It is on this machine, too, if the jobs are
                in the default database, which no other machine reaches.

        Raises:
            UsageError: no worker can find it.
        """
        from jobs.model_names import ModelNames

        names = ModelNames(self.store.served_models, here or self.settings.default_database)
        return names.doubt(model)

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
            self.tell(
                f"Workers could not be woken: {error}. The job is queued all the same; they look "
                "into the database every few seconds and will find it."
            )


@contextlib.contextmanager
def opened(
    create: bool = False,
    settings: Settings | None = None,
    tell: Callable[[str], None] = note,
    *,
    required: bool = False,
) -> Iterator[Deployment]:
    """Open a deployment, that which the environment names if no other is given.

    The default database is upgraded where an older pagemill made it. Where it is not there yet,
    it is as if it were empty.

    Args:
        create: make the default database; of variables that mean nothing is told before that.
        tell: takes what has to be said meanwhile.
        required: refuse a database that is not there.

    Raises:
        DatabaseError: the database is missing, or of another version.
    """
    from jobs.database import Database, upgrade
    from jobs.settings import Settings
    from jobs.storage import Storage
    from jobs.store import Store

    if settings is None:
        settings = Settings.from_env()
        if create:
            tell_of_unknown_variables(settings, tell)
    storage = Storage(settings.storage_url)
    on_wait = partial(tell_of_wait, tell=tell)
    database = Database(settings.database_url, on_wait)
    try:
        try:
            database.check_revision()
        except DatabaseError:
            if not settings.default_database or (required and database.is_missing()):
                raise
            if create or not database.is_missing():
                upgrade(settings.database_url, on_wait)
                database.check_revision()
            else:
                tell(
                    f"Nothing was submitted yet: there is no database {database.shown_url}; if "
                    "it is elsewhere, PAGEMILL_HOME says where"
                )
                database = Database.empty(settings.database_url)
        store = Store(database, lease_seconds=settings.lease_seconds)
        yield Deployment(settings, store, storage, tell)
    finally:
        database.close()


def tell_of_unknown_variables(settings: Settings, tell: Callable[[str], None]) -> None:
    """A misspelled name must not lead to another database in silence."""
    from jobs.doctor.settings_check import unknown_variables

    for name, meant in unknown_variables(os.environ, settings):
        hint = f"did you mean {meant}?" if meant else "`pagemill doctor` tells more"
        tell(f"Warning: unknown variable {name}; {hint}")


def tell_of_wait(error: DatabaseError, tell: Callable[[str], None] = note) -> None:
    """Say what is waited for."""
    tell(f"Waiting for the {error}")


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
