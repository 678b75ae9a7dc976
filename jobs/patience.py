"""How long a transaction is tried again that the database refused, and when that is told."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from jobs.database_errors import is_away, is_undone
from jobs.errors import DatabaseError

AWAY_SECONDS = 10.0  # for a server that was cut off, restarts, or has no room for connections
UNDONE_SECONDS = 30.0  # for conflicts with others, and for an SQLite file that another locks
TELL_SECONDS = 1.0  # shorter waits are not worth a word
REPEAT_SECONDS = 30.0  # between two words about it

Tell = Callable[[DatabaseError], None]


class Patience:
    """The waits of one transaction."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._refused_at: float | None = None
        self._attempts = 0

    def after(self, error: SQLAlchemyError) -> float | None:
        """Seconds to wait before the next attempt; None if there shall be none."""
        now = time.monotonic()
        if self._refused_at is None:  # a long wait for the first answer is no attempt lost
            self._refused_at = now
        self._attempts += 1
        if is_away(error):
            limit, wait = AWAY_SECONDS, min(0.1 * 2.0**self._attempts, 2.0)
        elif is_undone(error):
            limit, wait = UNDONE_SECONDS, min(0.02 * 2.0**self._attempts, 0.5)
        else:
            return None
        if now - self._refused_at + wait > limit:
            return None
        return random.uniform(0.5, 1) * wait

    @property
    def waited(self) -> float:
        """Seconds since the first attempt began."""
        return time.monotonic() - self._began


class Told:
    """Tells of waits now and then, however many threads wait.

    Args:
        tell: is given the error that is waited out.
    """

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._told_at = float("-inf")

    def of(self, error: DatabaseError, waited: float) -> None:
        now = time.monotonic()
        if self._tell is None or waited < TELL_SECONDS or now - self._told_at < REPEAT_SECONDS:
            return
        self._told_at = now
        self._tell(error)
