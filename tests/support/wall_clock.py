"""What cron means, said a second time: every minute is looked at, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

_MINUTE = timedelta(minutes=1)
_LOW = (0, 0, 1, 1, 0)
_HIGH = (59, 23, 31, 12, 7)


def times(expression: str, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """The times after one minute, up to and including another, both in UTC."""
    fields = expression.split()
    fixed = not fields[0].startswith("*") and not fields[1].startswith("*")
    found = []
    for moment, shown, before in _walls(zone, after, until):
        if fixed:
            # All that the hand of the clock passed on its way, but nothing a second time.
            passed = (before + _MINUTE * i for i in range(1, (shown - before) // _MINUTE + 1))
            if any(_matches(expression, wall) for wall in passed):
                found.append(moment)
        elif _matches(expression, shown):
            found.append(moment)
    return found


def _walls(
    zone: ZoneInfo, after: datetime, until: datetime
) -> Iterator[tuple[datetime, datetime, datetime]]:
    """Each minute, what the wall shows then, and the latest that it has shown before."""
    # A day before the first, so that a clock that was put back just now has a before.
    moment = after - timedelta(days=1)
    latest = moment.astimezone(zone).replace(tzinfo=None)
    while moment < until:
        moment += _MINUTE
        shown = moment.astimezone(zone).replace(tzinfo=None)
        if moment > after:
            yield moment, shown, latest
        latest = max(latest, shown)


@cache
def _values(field: str, i: int) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        low, _, high = ("", "", "") if span == "*" else span.partition("-")
        first = int(low) if low else _LOW[i]
        last = int(high) if high else _HIGH[i] if span == "*" or step else first
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset({0 if i == 4 and value == 7 else value for value in found})


def _matches(expression: str, wall: datetime) -> bool:
    minute, hour, day, month, weekday = (
        _values(field, i) for i, field in enumerate(expression.split())
    )
    if wall.minute not in minute or wall.hour not in hour or wall.month not in month:
        return False
    of_month, of_week = wall.day in day, wall.isoweekday() % 7 in weekday
    _, _, day_field, _, weekday_field = expression.split()
    if day_field.startswith("*") or weekday_field.startswith("*"):
        return of_month and of_week
    return of_month or of_week


def utc(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[misc,arg-type]
