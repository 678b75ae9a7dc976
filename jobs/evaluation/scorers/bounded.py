"""Regular expressions that somebody else wrote, in a bounded time.

Texts are cut, and a search ends after a while: expressions such as `(a|aa)+$` take years for a
text of some hundred characters. After a number of such texts the expression is given up, so that
it does not take that while for each of a million rows.
"""

from __future__ import annotations

import threading

import regex

MAX_CHARACTERS = 1 << 16  # of a text that is searched: its end, where answers are
MAX_SECONDS = 0.25  # of one search
MAX_SLOW = 40  # searches that took too long


class TooSlow(Exception):
    """A search took too long."""


class BoundedPattern:
    """A compiled regular expression of the library `regex`.

    Raises:
        ValueError: it is none.
    """

    def __init__(self, pattern: str, ignore_case: bool = False) -> None:
        try:
            self._compiled = regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ValueError(f"pattern is no regular expression: {error}") from None
        self._slow = 0
        self._lock = threading.Lock()

    @property
    def groups(self) -> int:
        return int(self._compiled.groups)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._compiled.groupindex)

    def search(self, text: str, last: bool = False) -> regex.Match[str] | None:
        """The first match, or the last one, in the end of a text.

        Raises:
            TooSlow: that takes too long.
        """
        if self._slow >= MAX_SLOW:
            raise TooSlow(f"the pattern took too long for {MAX_SLOW} rows; it is given up")
        text = text[-MAX_CHARACTERS:]
        try:
            if not last:
                return self._compiled.search(text, timeout=MAX_SECONDS)
            found = None
            for found in self._compiled.finditer(text, timeout=MAX_SECONDS):  # noqa: B007
                pass
            return found
        except TimeoutError:
            with self._lock:
                self._slow += 1
            raise TooSlow(f"the pattern took over {MAX_SECONDS:g} seconds") from None
