"""Durations as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_STEP = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration(text: str) -> timedelta | None:
    """`90s`, `30m`, `8h`, `1h30m`, `2d`; None if it is none of that kind.

    Raises:
        OverflowError: it is longer than a `timedelta` can be.
    """
    given = text.strip()
    if not _DURATION.fullmatch(given):
        return None
    steps = _STEP.findall(given)
    return sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in steps), timedelta())
