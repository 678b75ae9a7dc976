"""When a job gives up, as people write it."""

from __future__ import annotations

from datetime import datetime

from jobs.durations import parse_duration
from jobs.errors import UsageError


def parse_deadline(text: str, now: datetime) -> datetime:
    """`90s`, `30m`, `8h`, `1h30m`, `2d` from now, or an ISO time (local, if it names no zone).

    Args:
        now: with a time zone.

    Raises:
        UsageError: the text is neither, or the time has passed.
    """
    given = text.strip()
    try:
        if (duration := parse_duration(given)) is not None:
            return now + duration
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
