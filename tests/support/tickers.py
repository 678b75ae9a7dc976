"""A process that looks at the clock as fast as it can, for tests with several of them."""

from __future__ import annotations

from datetime import datetime

from jobs.database import Database
from jobs.schedules.cron import cron_of
from jobs.schedules.policies import plan
from jobs.store import Store


def tick_all(url: str, rounds: int, now: datetime) -> int:
    """Tick as if it were so late, again and again; returns how many evaluations it inserted.

    Each round is one of an honest ticker but for the clock: the schedule is put on by one time a
    round, so that there is always one that is due.
    """
    database = Database(url)
    store = Store(database)
    inserted = 0
    for _ in range(rounds):
        for schedule in store.schedules():
            due_at = schedule.next_due_at
            if due_at is None or due_at > now:
                continue
            to_do = plan(cron_of(schedule), due_at, due_at, schedule.catch_up)
            ticked = store.tick_schedule(schedule, to_do.run, to_do.missed, to_do.next_due_at)
            inserted += 0 if ticked is None else len(ticked.begun) + len(ticked.skipped)
    database.close()
    return inserted
