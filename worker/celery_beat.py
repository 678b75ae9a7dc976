"""The scheduler of pagemill for those whose deployment has a `celery beat` already.

    celery -A worker.celery_beat beat
    celery -A their.app beat --scheduler worker.celery_beat:SqlScheduler

It ticks schedules as `pagemill beat` and every worker do, in the database that the environment
names, and runs the entries of the app's own `beat_schedule` besides.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

from celery.beat import PersistentScheduler

from jobs.database import Database
from jobs.errors import JobsError
from jobs.schedules.ticking import seconds_to_next, tick
from jobs.settings import Settings
from jobs.store import Store
from jobs.wake import make_app

log = logging.getLogger("pagemill.celery_beat")


class SqlScheduler(PersistentScheduler):  # type: ignore[misc]
    """Celery's scheduler, which ticks the schedules in SQL, too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with _in_a_sentence():
            settings = Settings.from_env()
            self._database = Database(settings.database_url)
            self._database.check_revision()
        self._sql = Store(self._database, actor="celery-beat")
        self._most = settings.sweep_seconds
        super().__init__(*arguments, **options)

    def tick(self, *arguments: Any, **options: Any) -> float:
        """Do what is due; returns how many seconds there is nothing to do."""
        seconds: float = super().tick(*arguments, **options)
        return min(seconds, self._tick_sql())

    def close(self) -> None:
        self._database.close()
        super().close()

    def _tick_sql(self) -> float:
        try:
            tick(self._sql)
            return seconds_to_next(self._sql, self._most)
        except JobsError as error:  # a database that is away comes back
            log.warning("schedules: %s: %s", type(error).__name__, error)
            return self._most


@contextlib.contextmanager
def _in_a_sentence() -> Iterator[None]:
    """An error of ours ends the process without a traceback."""
    try:
        yield
    except JobsError as error:
        sys.exit(f"Error: {error}")


with _in_a_sentence():
    app = make_app(Settings.from_env())
app.conf.beat_scheduler = f"{__name__}:{SqlScheduler.__name__}"
