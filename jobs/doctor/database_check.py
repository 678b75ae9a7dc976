"""The database: is it there, of our version, writable, on time; who works for what is in it?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import jobs
from jobs.doctor.disks import existing, network_file_system, room
from jobs.doctor.findings import Finding, fault, warning, well
from jobs.errors import DatabaseError, DatabaseUnavailable, DatabaseUnusable, JobNotFound
from jobs.settings import Settings
from jobs.states import HAS_WORK

if TYPE_CHECKING:
    from jobs.database import Database
    from jobs.records import JobRecord, WorkerRecord
    from jobs.store import Store

ADVICE = (
    "see that the server runs and can be reached from here, that PAGEMILL_DATABASE_URL is right "
    "on every machine, and that its user owns pagemill's tables"
)
MOST_SKEW_SECONDS = 5.0
MOST_LATE = timedelta(hours=1)
_SHOWN = 5
_LOOKED_AT = 20  # jobs, the newest first: the oldest are those that are worked on


def check_database(settings: Settings) -> Iterator[Finding]:
    """Findings about the database, its clock, and the workers and schedules that it knows.

    Raises:
        DatabaseError: it cannot be used.
    """
    from jobs.database import Database
    from jobs.store import Store

    database = Database(settings.database_url)
    try:
        path = _sqlite_file(database)
        if path is not None and not path.exists():
            yield _no_file(path, settings.default_database)
            return
        try:
            database.check_revision()
        except (DatabaseUnavailable, DatabaseUnusable):
            raise
        except DatabaseError as error:
            advice = "run `pagemill db upgrade`, or install here the pagemill that upgraded it"
            yield fault("database", str(error), advice)
            return
        store = Store(database, lease_seconds=settings.lease_seconds)
        server = store.check()
        yield from _place(path, f"{server} at {database.shown_url}, of our version, writable")
        yield _clock(store)
        yield from _workers(store)
        yield from _schedules(store)
    finally:
        database.close()


def _sqlite_file(database: Database) -> Path | None:
    if database.engine.dialect.name != "sqlite":
        return None
    return Path(database.url.database or "")


def _no_file(path: Path, default: bool) -> Finding:
    import os

    folder = existing(path.absolute().parent)
    if not os.access(folder, os.W_OK | os.X_OK):
        return fault(
            "database",
            f"there is no {path}, and {folder} may not be written",
            "change the permissions, or set PAGEMILL_DATABASE_URL or PAGEMILL_HOME",
        )
    if default:
        return warning(
            "database", f"there is none yet at {path}", "the first submit, run or worker makes it"
        )
    return fault("database", f"there is none at {path}", "run `pagemill db upgrade`")


def _place(path: Path | None, shown: str) -> Iterator[Finding]:
    if path is None:
        yield well("database", shown)
        return
    if kind := network_file_system(path):
        yield fault(
            "database",
            f"the SQLite file {path} is on a network file system ({kind}), where its locks do not "
            "hold: two machines would damage it",
            "use PostgreSQL for several machines, or a disk of this one",
        )
        return
    free, trouble = room("database", path, "make room there: SQLite that cannot write stops all")
    yield trouble or well("database", f"{shown}, {free}")


def _clock(store: Store) -> Finding:
    before = datetime.now(UTC)
    theirs = store.now()
    after = datetime.now(UTC)
    # It was read at some time in between.
    skew = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    if skew > MOST_SKEW_SECONDS:
        return warning(
            "clock",
            f"this machine's clock and the database's are {skew:,.0f} s apart; leases and "
            "deadlines go by the database's",
            "let both be set by NTP (`timedatectl` tells whether they are)",
        )
    return well("clock", "this machine's clock and the database's agree")


def _workers(store: Store) -> Iterator[Finding]:
    alive = store.workers()
    served = {worker.model for worker in alive}
    waiting = store.list_jobs(HAS_WORK, limit=1000)
    unserved = sorted(
        {job.model for job in waiting if job.paused_at is None and job.model not in served}
    )
    for model in unserved[:_SHOWN]:
        yield warning(
            "workers",
            f"there are jobs for {model}, and no worker of it is alive",
            f"start one with `pagemill worker --model {model}`; `pagemill workers --all` tells "
            "how the last ones ended",
        )
    others = sorted({worker.software for worker in alive} - {jobs.__version__})
    if others:
        yield warning(
            "workers",
            f"there are workers of pagemill {', '.join(others)}; this one is {jobs.__version__}",
            "install the same version on every machine",
        )
    if not alive and not unserved:
        yield warning("workers", "none is alive", "start one with `pagemill worker --model MODEL`")
    elif alive and not others:
        yield well("workers", _described(alive))
    yield from _taken(store, [job for job in waiting if job.model in served])


def _taken(store: Store, waiting: Iterable[JobRecord]) -> Iterator[Finding]:
    """Models whose workers are all busy, while other jobs wait: nothing is wrong, they have to."""
    from jobs.cli.shapes import free_slot

    told: set[str] = set()
    for job in islice(waiting, _LOOKED_AT):
        if job.model in told:
            continue
        try:
            slot = free_slot(store.progress(job.id))
        except JobNotFound:  # deleted meanwhile
            continue
        if slot is not None:
            told.add(job.model)
            yield well("workers", f"{job.id} for {job.model} waits for {slot}")


def _schedules(store: Store) -> Iterator[Finding]:
    now, due = store.due_schedules()
    late = [s for s in due if s.next_due_at is not None and now - s.next_due_at > MOST_LATE]
    for schedule in late[:_SHOWN]:
        yield warning(
            "schedules",
            f"{schedule.name} was due at {schedule.next_due_at:%Y-%m-%d %H:%M} UTC, and nobody has "
            "looked at the clock since: no beat and no worker runs",
            "start `pagemill beat`",
        )
    if not late and (known := store.schedules()):
        paused = sum(schedule.paused_at is not None for schedule in known)
        yield well("schedules", f"{len(known)} known, {paused} paused; none is late")


def _described(alive: list[WorkerRecord]) -> str:
    shown = [f"{w.id} of {w.model} ({w.status.state})" for w in alive[:_SHOWN]]
    more = f" and {len(alive) - _SHOWN} more" if len(alive) > _SHOWN else ""
    return f"{len(alive)} alive: {', '.join(shown)}{more}"
