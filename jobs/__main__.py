"""`python -m jobs`, and the entry point of the installed `pagemill` and `jobs`."""

from __future__ import annotations

import io
import os
import signal
import sys

from jobs.ctrl_c import INTERRUPTED, while_loading
from jobs.leaving import hang_up


def main() -> None:
    _open_what_is_closed()
    _escape_what_has_no_letter()
    # They end a command as Ctrl-C does: what it had begun to write is removed.
    for number in (signal.SIGTERM, *hang_up()):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
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
