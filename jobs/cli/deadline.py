"""When a job gives up, as people write it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from jobs.errors import UsageError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_STEP = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_deadline(text: str, now: datetime) -> datetime:
    """`90s`, `30m`, `8h`, `1h30m`, `2d` from now, or an ISO time (local, if it names no zone).

    Args:
        now: with a time zone.

    Raises:
        UsageError: the text is neither, or the time has passed.
    """
    given = text.strip()
    if _DURATION.fullmatch(given):
        steps = _STEP.findall(given)
        try:
            return now + sum(
                (timedelta(**{_UNITS[unit]: float(number)}) for number, unit in steps), timedelta()
            )
        except OverflowError:
            raise UsageError(f"--deadline {text!r} is too far away") from None
    try:
        deadline = datetime.fromisoformat(given).astimezone()
    except (ValueError, OverflowError):
        raise UsageError(
            f"--deadline {text!r} is neither a duration (90m, 8h, 1h30m, 2d) nor a time "
            "(2030-01-31T08:00+01:00)"
        ) from None
    if deadline <= now:
        raise UsageError(f"--deadline {text!r} has passed already")
    return deadline
