"""Whose turn it is: hosts are served one after the other, and one that is silent is left.

Thousands may be due to one host. Were they sent as they come, a host that hangs would take all
the connections there are, for ten seconds each, and those to all others would wait for hours.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

AT_ONCE = 4  # to one host that answers; to one that has said nothing yet, one
LOOK_SECONDS = 10.0  # until the database is asked what else is due by now
_KEPT = 500  # of one host; the others are found by a later look

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be sent next.

    Attributes:
        id: of the notification.
    """

    host: str
    id: str


def host_of(url: str) -> str:
    """What can be silent: scheme, host and port; whatever else it is, of a URL that is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return url
    return f"{parts.scheme}://{parts.hostname}:{port}"


class Turns:
    """What is due at one look, handed out to any number of threads.

    Args:
        due: ids and URLs, of which those of one host are sent in this order.
    """

    def __init__(self, due: Iterable[tuple[str, str]]) -> None:
        self._waiting: dict[str, deque[str]] = {}  # the host that was served last is last
        self._in_flight: Counter[str] = Counter()
        self._answering: set[str] = set()
        self._changed = threading.Condition()
        self._until = time.monotonic() + LOOK_SECONDS
        for id, url in due:
            of_host = self._waiting.setdefault(host_of(url), deque())
            if len(of_host) < _KEPT:
                of_host.append(id)

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def take(self) -> Turn | None:
        """The next one; None if there is none, or it is time to look again.

        Waits while it depends on an answer that somebody waits for.
        """
        with self._changed:
            while self._waiting and time.monotonic() < self._until:
                for host in self._waiting:
                    if self._in_flight[host] < (AT_ONCE if host in self._answering else 1):
                        return self._taken(host)
                self._changed.wait()
            return None

    def over(self, turn: Turn, silent: bool) -> bool:
        """Note that a turn has ended; returns whether others of its host are left for now.

        Args:
            silent: there was no answer.
        """
        with self._changed:
            self._changed.notify_all()
            self._in_flight[turn.host] -= 1
            if not silent:
                self._answering.add(turn.host)
                return False
            return self._waiting.pop(turn.host, None) is not None

    def end(self) -> None:
        """Hand out no more."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def _taken(self, host: str) -> Turn:
        of_host = self._waiting.pop(host)
        id = of_host.popleft()
        if of_host:
            self._waiting[host] = of_host
        self._in_flight[host] += 1
        return Turn(host, id)
