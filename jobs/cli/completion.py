"""What a shell may complete that only the database knows.

Whoever presses Tab waits, and reads nothing but what fits: there are no messages, and where the
database does not answer at once, nothing is completed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jobs.errors import JobsError
from jobs.model_aliases import MODEL_ALIASES

if TYPE_CHECKING:
    from jobs.records import JobRecord
    from jobs.store import Store

_PATIENCE_SECONDS = 2.0
_NEWEST = 1000

Completion = tuple[str, str]


def job_ids(incomplete: str) -> list[Completion]:
    """Ids of jobs, newest first, with what they are."""
    return _soon(lambda: _ids(incomplete))


def ended_job_ids(incomplete: str) -> list[Completion]:
    """Those of jobs that have ended."""
    return _soon(lambda: _ids(incomplete, ended=True))


def models(incomplete: str) -> list[Completion]:
    """Models that there were jobs for. (The shell completes paths by itself.)"""
    found = _soon(_models)
    named = {name: (name, told) for name, told in (*found, *MODEL_ALIASES.items())}
    return [pair for name, pair in named.items() if name.startswith(incomplete)]


def evaluation_ids(incomplete: str) -> list[Completion]:
    """Ids of evaluations, newest first, with what they are."""
    return _soon(lambda: _evaluation_ids(incomplete))


def evaluation_names(incomplete: str) -> list[Completion]:
    """Names of series of evaluations."""
    return _soon(lambda: _evaluation_names(incomplete))


def schedule_names(incomplete: str) -> list[Completion]:
    """Names of schedules, with when they are due."""
    return _soon(lambda: _schedule_names(incomplete))


def _evaluation_ids(incomplete: str) -> Iterator[Completion]:
    with _store() as store:
        found = store.list_evaluations(limit=_NEWEST)
    for evaluation in found:
        if evaluation.id.startswith(incomplete):
            yield evaluation.id, f"{evaluation.state} {evaluation.name}"


def _evaluation_names(incomplete: str) -> Iterator[Completion]:
    with _store() as store:
        found = store.evaluation_names()
    for name in found:
        if name.startswith(incomplete):
            yield name, "a series of evaluations"


def _schedule_names(incomplete: str) -> Iterator[Completion]:
    with _store() as store:
        found = store.schedules()
    for schedule in found:
        if schedule.name.startswith(incomplete):
            yield schedule.name, f"{schedule.cron} {schedule.timezone}"


def _ids(incomplete: str, *, ended: bool = False) -> Iterator[Completion]:
    for job in _jobs():
        if job.id.startswith(incomplete) and (job.state.terminal or not ended):
            yield job.id, f"{job.state} {job.name or job.input_uri}"


def _models() -> Iterator[Completion]:
    for job in _jobs():
        yield job.model, "a model of jobs"


def _jobs() -> list[JobRecord]:
    with _store() as store:
        return store.list_jobs(limit=_NEWEST)


@contextlib.contextmanager
def _store() -> Iterator[Store]:
    from jobs.database import Database
    from jobs.settings import Settings
    from jobs.store import Store

    database = Database(Settings.from_env().database_url)
    try:
        database.check_revision()  # which makes no file where there is none
        yield Store(database)
    finally:
        database.close()


def _soon(ask: Callable[[], Iterator[Completion]]) -> list[Completion]:
    """What is found within a moment; whatever goes wrong, it is nothing."""
    # To load it may take as long as all else, and ends for certain.
    import jobs.database
    import jobs.store  # noqa: F401

    found: list[Completion] = []

    def look() -> None:
        with contextlib.suppress(JobsError):
            found.extend(ask())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return [] if thread.is_alive() else found
