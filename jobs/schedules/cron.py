"""From a cron expression and a time zone to times.

The expression is matched against the clock on the wall, so what happens where that clock is put
forward or back is decided here, as Debian's cron decides it:

    fixed     minute and hour both begin with no `*`: each time on the wall is run once. One that
              the clock jumps over is run at the first moment after the gap; of one that is there
              twice, the first is run.
    wildcard  minute or hour begins with `*`: it is run whenever the wall shows such a time. So
              `*/15 * * * *` runs through all hours that really pass.

Days match as in cron: where both the day of the month and the day of the week are given (neither
begins with `*`), one of them is enough.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from jobs.errors import UsageError

if TYPE_CHECKING:
    from jobs.records.evaluations import ScheduleRecord

MAX_LENGTH = 255  # characters of an expression

_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
_RANGES = ("0 to 59", "0 to 23", "1 to 31", "1 to 12 or JAN to DEC", "0 to 7 or SUN to SAT")
_SIZES = (60, 24, 31, 12, 7)
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ONE_STEP = re.compile(r"\b(\w+)-\1/\d+\b")  # a range of one, with a step
_STEP = timedelta(days=1)  # no zone changes its clock and changes it back within one
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Cron:
    """The times of a cron expression in a time zone.

    Attributes:
        expression: as it was written.
        fields: the same as five fields.
    """

    expression: str
    fields: str
    zone: ZoneInfo

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The times after a moment, in order, in UTC; it ends where there are no more."""
        moment = moment.astimezone(UTC).replace(microsecond=0)
        return self._fixed(moment) if self._is_fixed else self._wildcard(moment)

    def next(self, moment: datetime) -> datetime | None:
        """The first time after a moment, in UTC; None if there is none."""
        return next(self.after(moment), None)

    def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """The last times after one moment, up to and including another, in order."""
        width = timedelta(hours=1)
        while True:
            start = max(after, until - width)
            found: list[datetime] = []
            for time in self.after(start):
                if time > until:
                    break
                found.append(time)
            if len(found) >= most or start == after:
                return found[-most:]
            width *= 2

    @property
    def _is_fixed(self) -> bool:
        minute, hour, *_ = self.fields.split()
        return not minute.startswith("*") and not hour.startswith("*")

    def _fixed(self, moment: datetime) -> Iterator[datetime]:
        last = moment
        for wall in _walls(self.fields, self._wall(moment)):
            time = self._first(wall)
            # The first of two times that the wall shows may have passed, and several times that
            # the clock jumps over become one.
            if time > last:
                yield time
                last = time

    def _wildcard(self, moment: datetime) -> Iterator[datetime]:
        wall = self._wall(moment)
        while True:
            offset = self._offset(moment)
            for wall in _walls(self.fields, wall):  # noqa: B020
                time = (wall - offset).replace(tzinfo=UTC)
                change = self._change(moment, time)
                if change is not None:
                    break
                yield time
                moment = time
            else:
                return
            # From the change on the wall shows something else, and that moment itself may match.
            moment = change
            wall = self._wall(change) - _SECOND

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _offset(self, moment: datetime) -> timedelta:
        return self._wall(moment) - moment.astimezone(UTC).replace(tzinfo=None)

    def _first(self, wall: datetime) -> datetime:
        """The first moment at which the wall shows that time, or a later one if it never does."""
        time = wall.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        if self._wall(time) == wall:
            return time
        # In a gap. With the offset from before it, `time` lies after the change.
        change = self._change(time - _STEP, time)
        assert change is not None
        return change

    def _change(self, after: datetime, until: datetime) -> datetime | None:
        """The first moment after one, up to another, from which on the zone has another offset."""
        offset = self._offset(after)
        while after < until:
            end = min(after + _STEP, until)
            if self._offset(end) != offset:
                while end - after > _SECOND:
                    middle = (after + (end - after) / 2).replace(microsecond=0)
                    if self._offset(middle) == offset:
                        after = middle
                    else:
                        end = middle
                return end
            after = end
        return None


def parse_cron(expression: str, timezone: str) -> Cron:
    """The times of an expression in a time zone.

    Raises:
        UsageError: one of the two is none, or there is never such a time.
    """
    zone = parse_zone(timezone)
    written = expression.strip()
    if len(written) > MAX_LENGTH:
        raise UsageError(f"the cron expression has {len(written)} characters; {MAX_LENGTH} may be")
    fields = _NAMED.get(written.lower(), written)
    if fields.startswith("@"):
        raise UsageError(
            f"the cron expression {written!r} is not known; known are {', '.join(_NAMED)}, and "
            'five fields such as "0 2 * * *"'
        )
    # cronsim takes `3-3/5` for `3/5`, which is from 3 on.
    parts = [_ONE_STEP.sub(r"\1", part) for part in fields.split()]
    if len(parts) != len(_FIELDS):
        raise UsageError(
            f"the cron expression {written!r} has {len(parts)} fields; it must have five: "
            f"{', '.join(_FIELDS)}"
        )
    for i, part in enumerate(parts):
        _check_field(written, i, part)
    cron = Cron(written, " ".join(parts), zone)
    try:
        comes = next(_walls(cron.fields, datetime(2000, 1, 1)), None)  # noqa: DTZ001
    except CronSimError:
        comes = None
    if comes is None:
        raise UsageError(
            f"the cron expression {written!r} never comes: no month that it names has such a day"
        )
    return cron


def cron_of(schedule: ScheduleRecord) -> Cron:
    """The times of a schedule.

    Raises:
        UsageError: its time zone is not known on this machine.
    """
    return parse_cron(schedule.cron, schedule.timezone)


def parse_zone(name: str) -> ZoneInfo:
    """A time zone by its IANA name.

    Raises:
        UsageError: there is none of that name, or no time zones at all.
    """
    try:
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
    if not known:
        raise UsageError(
            f"the time zone {name!r} cannot be found, as this Python has no time zones: run "
            "`pip install tzdata`"
        )
    near = difflib.get_close_matches(name, known, n=1)
    by_case = [zone for zone in known if zone.lower() == name.lower()]
    hint = f"did you mean {(by_case or near)[0]}?" if by_case or near else "see the IANA's names"
    raise UsageError(
        f"there is no time zone {name!r}; {hint} (a name is such as Europe/Berlin or UTC)"
    )


def _check_field(written: str, i: int, part: str) -> None:
    """See that a field can be read, alone, so that it can be named."""
    for step in re.findall(r"/(\d+)", part):
        if int(step[:9]) > _SIZES[i]:
            raise UsageError(
                f"the cron expression {written!r} cannot be meant so: its {_FIELDS[i]} is "
                f"{part!r}, but steps are counted anew after {_SIZES[i]}; none can be longer"
            )
    alone = ["*"] * len(_FIELDS)
    alone[i] = part
    try:
        CronSim(" ".join(alone), datetime(2000, 1, 1))  # noqa: DTZ001
    except (CronSimError, ValueError, AssertionError, RecursionError):
        raise UsageError(
            f"the cron expression {written!r} cannot be read: its {_FIELDS[i]} is {part!r}; it "
            f"must be made of *, numbers {_RANGES[i]}, ranges, steps and lists of them"
        ) from None


def _walls(fields: str, after: datetime) -> Iterator[datetime]:
    """The times that match on a wall whose clock is never put forward or back."""
    # Without a time zone cronsim adds seconds to dates and knows of no change.
    return CronSim(fields, after)
