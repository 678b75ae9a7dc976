"""`python -P -m jobs.evaluation`: takes all steps of evaluations that are due, and ends.

Workers and beats start it (see `jobs.evaluation.background`), so that neither the reading of a
large data set nor a scorer, which may be somebody's program, takes time or memory from them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

from jobs.leaving import Leaving

NICE = 10


def main(arguments: list[str]) -> int:
    """Work until nothing is due; SIGTERM ends it in the midst, and its lease is given back."""
    from jobs.cli.deployment import opened
    from jobs.errors import JobsError
    from jobs.evaluation.runs import drive
    from jobs.logs import configure_logging

    level, form = arguments or ("info", "text")
    configure_logging("evaluation", as_json=form == "json", level=level)
    leaving = Leaving()
    leaving.on(signal.SIGTERM)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    owner = f"evaluation:{socket.gethostname()}:{os.getpid()}"
    try:
        with opened() as deployment:
            store = deployment.store.acting_as(owner)
            while drive(store, deployment.storage, deployment.settings, owner, lost=_give_up):
                leaving.check()
    except JobsError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _give_up() -> None:
    """Leave a scorer that may never end; what else is due is done by the next process."""
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
