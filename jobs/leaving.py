"""Signals that tell a process to leave, and what they raise in the midst of its work."""

from __future__ import annotations

import signal
from types import FrameType


def hang_up() -> tuple[signal.Signals, ...]:
    """SIGHUP, as of a terminal that was closed, to be heeded as SIGTERM is.

    Nothing where it is ignored, as under `nohup`: there it stays so.
    """
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)


def interruption_behind(
    error: BaseException, handled: BaseException | None = None
) -> KeyboardInterrupt | SystemExit | None:
    """What a signal raised, if an error took its place, as one in putting things in order does.

    Args:
        handled: what was being handled before, which is none of this error's.
    """
    behind = error.__context__
    while behind is not None and behind is not handled:
        if isinstance(behind, (KeyboardInterrupt, SystemExit)):
            return behind
        behind = behind.__context__
    return None


class ToldToLeave(SystemExit):
    """This process is to end; a function of somebody's that exits wants nothing of the kind."""


class Leaving:
    """Ends what is going on, in the midst of it, when a signal comes.

    What a handler raises can be lost: a finalizer swallows it, an error in putting things in order
    takes its place, somebody's function catches all there is. So whoever works in rounds calls
    `check` between them.

    Attributes:
        told: whether a signal came.
    """

    def __init__(self) -> None:
        self.told = False

    def on(self, *numbers: signal.Signals) -> None:
        """Leave at these signals."""
        for number in numbers:
            signal.signal(number, self._signalled)

    def check(self) -> None:
        """Leave now, if a signal came.

        Raises:
            ToldToLeave: one did.
        """
        if self.told:
            raise ToldToLeave(0)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self.told = True
        raise ToldToLeave(0)
