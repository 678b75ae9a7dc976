"""`python -m jobs`, and the entry point of the installed `pagemill` and `jobs`."""

from __future__ import annotations

import signal
import sys

from jobs.cli.app import app


def main() -> None:
    # SIGTERM ends a command as Ctrl-C does: what it had begun to write is removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    app(prog_name="pagemill")


if __name__ == "__main__":
    main()
