"""Waiting long in the main thread, where signals are handled."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

PIECE_SECONDS = 0.5


def in_pieces(wait: Callable[[float], bool], seconds: float = math.inf) -> bool:
    """Wait for something, in the main thread in pieces; returns whether it has happened.

    Python calls the handler of a signal between two steps of the main thread. A signal that comes
    when a wait has just begun, but is not yet the kernel's, does not end it: its handler is called
    after the wait, which is never, for all the sender knows, where that takes an hour.

    Args:
        wait: waits for so many seconds at most, as `Event.wait`.
    """
    signalled = threading.current_thread() is threading.main_thread()
    piece = PIECE_SECONDS if signalled else threading.TIMEOUT_MAX
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if wait(min(left, piece)):
            return True
    return False
