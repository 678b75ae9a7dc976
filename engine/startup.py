"""What the start of an engine is at, told to whoever waits for it.

A start takes seconds to minutes, most of them deep in the loading of a model. The steps are told to
a listener of the thread, so that nothing between has to hand them on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TELL_SECONDS = 0.25  # between two words on the same step, at least
_TRUST_SECONDS = 1.0  # after which the pace of a step says when it ends

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Have the steps that this thread begins meanwhile told to a listener, in words."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(step: str) -> None:
    """A step begins whose length is not known."""
    listener = _listener.get()
    if listener is not None:
        listener(step)


class Step:
    """A step whose length is known: `loading weights 60%, about 12 s left`.

    Args:
        name: what is done, such as `loading weights`.
        total: how much there is to do.
    """

    def __init__(self, name: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._total = max(1, total)
        self._done = 0
        self._clock = clock
        self._began = self._told_at = clock()
        tell(f"{name} 0%")

    def add(self, number: int) -> None:
        """So much more is done."""
        self._done += number
        now = self._clock()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            tell(f"{self._name} {100 * self._done // self._total}%{self._left(now)}")

    def _left(self, now: float) -> str:
        took = now - self._began
        if took < _TRUST_SECONDS or not self._done:
            return ""
        seconds = round(took * (self._total - self._done) / self._done)
        minutes = f"{seconds // 60} min " if seconds >= 60 else ""
        return f", about {minutes}{seconds % 60} s left"
