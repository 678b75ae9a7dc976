"""`python -m jobs`, and the entry point of the installed `pagemill` and `jobs`."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading

from jobs.ctrl_c import INTERRUPTED, while_loading
from jobs.leaving import hang_up

_AGAIN_SECONDS = 0.05


def main() -> None:
    _open_what_is_closed()
    _escape_what_has_no_letter()
    # They end a command as Ctrl-C does: what it had begun to write is removed.
    for number in (signal.SIGTERM, *hang_up()):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    sys.unraisablehook = _again
    try:
        with while_loading():
            from jobs.cli.app import app
            from jobs.cli.group import uncaught
            from jobs.cli.shell_init import asked_at_start_up, shell_init
        sys.excepthook = uncaught
        if shell := asked_at_start_up(sys.argv[1:]):
            shell_init(shell)
        else:
            app(prog_name="pagemill")
    except KeyboardInterrupt:  # before the command began, or after it
        sys.exit(INTERRUPTED)
    finally:
        _nothing_to_put_in_order()


def _again(lost: sys.UnraisableHookArgs) -> None:
    """What a signal raised in the midst of a finalizer is lost: the signal is sent once more."""
    match lost.exc_value:
        case KeyboardInterrupt():
            number = int(signal.SIGINT)
        case SystemExit(code=int(code)) if code > 128:
            number = code - 128
        case _:
            sys.__unraisablehook__(lost)
            return
    # By a thread, as it would be lost in here, too.
    threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()


def _nothing_to_put_in_order() -> None:
    """From now on signals end the process without a word, as the interpreter ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _open_what_is_closed() -> None:
    """After `>&-` or `2>&-`: else the next file that is opened would be stdout or stderr.

    Python has None in their place, and `print` takes None for stdout: hints would be results.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: the closed one's
            os.set_inheritable(number, True)
            stream = os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace")
            setattr(sys, name, stream)


def _escape_what_has_no_letter() -> None:
    """In a locale that is not of UTF-8 (`LC_ALL=en_US.ISO-8859-1`), a name, an answer or the bar
    of a table may have characters that cannot be written there."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
