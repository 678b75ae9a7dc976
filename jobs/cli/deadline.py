"""Moments as people write them: when a job gives up, and since when jobs are listed."""

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
    deadline = _moment("--deadline", text, now, 1)
    if deadline <= now:
        raise UsageError(f"--deadline {text!r} has passed already")
    return deadline


def parse_since(text: str, now: datetime) -> datetime:
    """`90m`, `8h`, `2d` ago, or an ISO time (local, if it names no zone).

    Args:
        now: with a time zone.

    Raises:
        UsageError: the text is neither, or the time is yet to come.
    """
    since = _moment("--since", text, now, -1)
    if since > now:
        raise UsageError(f"--since {text!r} is yet to come")
    return since


def _moment(option: str, text: str, now: datetime, sign: int) -> datetime:
    """A duration from now on (`sign` 1) or before now (-1), or the time that is named."""
    given = text.strip()
    try:
        if (duration := parse_duration(given)) is not None:
            return now + sign * duration
    except OverflowError:
        raise UsageError(f"{option} {text!r} is too far away") from None
    try:
        return datetime.fromisoformat(given).astimezone()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text!r} is neither a duration (90m, 8h, 1h30m, 2d) nor a time "
            "(2030-01-31T08:00+01:00)"
        ) from None
