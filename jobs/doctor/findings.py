"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not as well as it might, or not yet
    FAULT = "fault"  # something that is asked for cannot work


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what it is, such as `database`.
        found: what is the case, in a sentence.
        advice: what to do, unless all is well.
    """

    name: str
    level: Level
    found: str
    advice: str | None = None


def well(name: str, found: str) -> Finding:
    return Finding(name, Level.OK, found)


def warning(name: str, found: str, advice: str) -> Finding:
    return Finding(name, Level.WARNING, found, advice)


def fault(name: str, found: str, advice: str) -> Finding:
    return Finding(name, Level.FAULT, found, advice)
