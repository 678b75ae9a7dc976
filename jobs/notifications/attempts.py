"""Which answers are final, and how long to wait before the next attempt."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_ATTEMPTS = 18  # about a day, with the waits between them
FIRST_WAIT = 5.0
LONGEST_WAIT = 4 * 3600.0
_JITTER = 0.25  # so that those that failed together are not sent together for ever
GONE = 410


def is_taken(status: int) -> bool:
    return 200 <= status < 300


def is_final(status: int) -> bool:
    """Whether the receiver says that it will never take it.

    Any other answer may pass: a receiver that is being deployed anew says 404, and one whose
    secret is not set yet says 401.
    """
    return status == GONE


def wait_after(attempts: int, retry_after: float | None = None) -> float | None:
    """Seconds until the next attempt, after so many; None if there is none.

    Args:
        retry_after: what the receiver asked for.
    """
    if attempts >= MAX_ATTEMPTS:
        return None
    # The exponent is bounded: 2.0 ** 2000 is no float.
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempts - 1, 30))
    wait *= random.uniform(1 - _JITTER, 1 + _JITTER)
    return max(wait, min(LONGEST_WAIT, retry_after or 0.0))


def seconds_of(retry_after: str | None) -> float | None:
    """What a header `Retry-After` asks for: seconds, or a date; None if it is neither."""
    if not retry_after:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
