"""Schedules, as a part of `Store`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from jobs.database import Database
from jobs.ids import new_id
from jobs.records.evaluations import ScheduleRecord
from jobs.store import schedules, ticks
from jobs.store.schedules import NewSchedule, NextTime
from jobs.store.ticks import Ticked


class Scheduling:
    """The methods of `Store` that keep schedules and look at what is due."""

    _database: Database

    def add_schedule(self, new: NewSchedule, *, replace: bool = False) -> ScheduleRecord:
        """Insert a schedule.

        Args:
            replace: it takes the place of one of its name, whose evaluations become its own.

        Raises:
            StateConflict: there is one of its name, and it is not to be replaced.
        """
        return self._database.transact(lambda c: schedules.insert_schedule(c, new, replace))

    def schedule(self, name: str) -> ScheduleRecord:
        """The schedule of that name.

        Raises:
            ScheduleNotFound: there is none.
        """
        with self._database.read() as connection:
            return schedules.find_schedule(connection, name)

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules, by name."""
        with self._database.read() as connection:
            return schedules.list_schedules(connection)

    def pause_schedule(self, name: str) -> ScheduleRecord:
        """Let no time of a schedule come until it is resumed. Asking again changes nothing.

        Raises:
            ScheduleNotFound: there is none of that name.
        """
        return self._database.transact(lambda c: schedules.pause_schedule(c, name))

    def resume_schedule(
        self, name: str, next_time_of: Callable[[ScheduleRecord], NextTime]
    ) -> ScheduleRecord:
        """Let a schedule go on with the first time after now; nothing changes if it is not paused.

        Raises:
            ScheduleNotFound: there is none of that name.
        """
        return self._database.transact(lambda c: schedules.resume_schedule(c, name, next_time_of))

    def remove_schedule(self, name: str) -> bool:
        """Forget a schedule, but none of its evaluations; False if there is none."""
        return self._database.transact(lambda c: schedules.remove_schedule(c, name))

    def run_now(self, name: str) -> str:
        """Insert an evaluation of a schedule whose time has not come; returns its id.

        Raises:
            ScheduleNotFound: there is no such schedule.
            StateConflict: another one runs, and those of the schedule must not overlap.
        """
        evaluation_id = new_id("eval")
        return self._database.transact(lambda c: ticks.run_now(c, name, evaluation_id))

    def due_schedules(self) -> tuple[datetime, list[ScheduleRecord]]:
        """The database's time, and the schedules of which a time has come by it."""
        with self._database.read() as connection:
            return schedules.due_schedules(connection)

    def schedules_ahead(self) -> tuple[datetime, list[ScheduleRecord]]:
        """The database's time, and the schedules whose next time is still to come."""
        with self._database.read() as connection:
            return schedules.schedules_ahead(connection)

    def seconds_to_next_tick(self) -> float | None:
        """How long until the next time of any schedule; negative if it has come; None without."""
        with self._database.read() as connection:
            return schedules.seconds_to_next(connection)

    def tick_schedule(
        self,
        seen: ScheduleRecord,
        run: tuple[datetime, ...],
        missed: tuple[datetime, datetime] | None,
        next_due_at: datetime | None,
    ) -> Ticked | None:
        """Insert evaluations for times that have come, and move the schedule on: all or nothing.

        Args:
            seen: the schedule as `due_schedules` gave it.
            missed: the first and the last time of those that are not run.

        Returns:
            None if it was moved on, changed or removed by others meanwhile.
        """
        return self._database.transact(
            lambda c: ticks.tick_schedule(c, seen, run, missed, next_due_at)
        )
