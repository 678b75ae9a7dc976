"""Ctrl-C while a program is still loaded."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NoReturn

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended


def ends_at_once() -> None:
    """Let Ctrl-C end the process with no word, for as long as it has nothing to put in order.

    An interpreter that is interrupted in an import shows a traceback of whatever it imported.
    Where Ctrl-C is ignored (`nohup`, `&` of a script), or handled, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextlib.contextmanager
def while_loading() -> Iterator[None]:
    """`ends_at_once`, until the block is left."""
    before = signal.getsignal(signal.SIGINT)
    ends_at_once()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)
