"""What schedules have to do, by a model that knows no SQL and looks at every minute."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.records.evaluations import CatchUp, Overlap
from tests.support import wall_clock

_GRACE = timedelta(minutes=10)
_LOOKED_AHEAD = timedelta(hours=3)  # within which every expression of the test has a time


@dataclass
class ModelSeries:
    """What all schedules of one name began, one after the other.

    Attributes:
        open: how many evaluations have not ended.
    """

    open: int = 0


@dataclass
class ModelSchedule:
    """A schedule, and what it has made of its times.

    Attributes:
        rows: of each time, `pending`, `overlap` or `missed`.
    """

    cron: str
    zone: str
    catch_up: CatchUp
    overlap: Overlap
    series: ModelSeries = field(default_factory=ModelSeries)
    next: datetime | None = None
    rows: dict[datetime, str] = field(default_factory=dict)

    def start(self, now: datetime) -> None:
        self.next = self._between(now, now + _LOOKED_AHEAD)[0]

    def mend(self, now: datetime) -> None:
        """A time that lies behind the first one after now was left by a clock that was put back."""
        if self.next is not None and self.next > now:
            self.start(now)

    def look(self, now: datetime) -> Plan | None:
        if self.next is None or self.next > now:
            return None
        come = [self.next, *self._between(self.next, now)]
        most = 100 if self.catch_up is CatchUp.ALL else 1
        run = come[-most:]
        if self.catch_up is CatchUp.SKIP and run[-1] < now - _GRACE:
            run = []
        missed = self.next if len(run) < len(come) else None
        following = self._between(now, now + _LOOKED_AHEAD)[0]
        return Plan(self.next, tuple(run), missed, following)

    def tick(self, plan: Plan) -> None:
        if self.next != plan.seen:
            return
        self.next = plan.following
        if plan.missed is not None:
            self.rows.setdefault(plan.missed, "missed")
        for due in plan.run:
            if due in self.rows:
                continue
            if self.overlap is Overlap.SKIP and self.series.open:
                self.rows[due] = "overlap"
            else:
                self.rows[due] = "pending"
                self.series.open += 1

    def _between(self, after: datetime, until: datetime) -> list[datetime]:
        # The times are those of whole minutes.
        after = after.replace(second=0, microsecond=0)
        return wall_clock.times(self.cron, ZoneInfo(self.zone), after, until)


@dataclass(frozen=True)
class Plan:
    seen: datetime
    run: tuple[datetime, ...]
    missed: datetime | None
    following: datetime
