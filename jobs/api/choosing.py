"""Which of the newest are listed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from jobs.errors import UsageError

State = TypeVar("State", bound=StrEnum)


def chosen_states(kind: type[State], state: str | Iterable[str] | None, limit: int) -> list[State]:
    """The states of which the newest `limit` are asked for; none means all.

    Raises:
        UsageError: there is no such state, or nothing could be listed.
    """
    wanted = [state] if isinstance(state, str) else list(state or ())
    for one in wanted:
        if one not in list(kind):
            raise UsageError(f"there is no state {one!r}; it is one of {', '.join(kind)}")
    if limit < 1:
        raise UsageError(f"limit is {limit}; it must be 1 or more")
    return [kind(one) for one in wanted]
