"""`python -m jobs`, and the entry point of the installed `pagemill` and `jobs`."""

from __future__ import annotations

import signal
import sys

from jobs.ctrl_c import INTERRUPTED, while_loading


def main() -> None:
    # SIGTERM ends a command as Ctrl-C does: what it had begun to write is removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
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


if __name__ == "__main__":
    main()
