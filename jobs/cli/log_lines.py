"""Lines of a worker's log, in whichever form it was written."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_ERRORS = ("ERROR", "CRITICAL")
# `2030-01-31 08:00:00,000 ERROR pagemill.worker what went wrong`
_TEXT_LINE = re.compile(r"^\S+ \S+ (?P<level>[A-Z]+) \S+ (?P<message>.+)$")


@dataclass(frozen=True, slots=True)
class LogLine:
    """What a line says.

    Attributes:
        level: None of a line that no logger wrote.
        shown: all of it, for people.
    """

    level: str | None
    message: str
    shown: str

    @property
    def is_error(self) -> bool:
        return self.level in _ERRORS


def read_log_line(line: str) -> LogLine:
    """Read a line of text or JSON; what is neither is a message as it stands."""
    try:
        fields = json.loads(line)
        level, message = str(fields["level"]), str(fields["message"])
        return LogLine(level, message, f"{fields['ts']} {level} {fields['logger']} {message}")
    except (ValueError, KeyError, TypeError, RecursionError):
        match = _TEXT_LINE.match(line)
    if match is None:
        return LogLine(None, line, line)
    return LogLine(match["level"], match["message"], line)
