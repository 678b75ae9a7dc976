"""`python -P -m jobs.evaluation.scorers.apart_main`: calls a function for the rows of its stdin.

See `jobs.evaluation.scorers.apart`. It ends with its stdin, or with the process that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import pyarrow as pa

from jobs.evaluation.rows import Score, missing
from jobs.evaluation.scorers.apart import row_of_line
from jobs.evaluation.scorers.plugins import Python

LOOK_SECONDS = 1.0


def main() -> int:
    """Answer a line a row, until there is none any more."""
    # What the function prints is for people, and what it reads is nothing.
    lines, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    called = Python.of(json.loads(lines.readline()), "options")
    called.prepare()
    answers.write(b"{}\n")
    for line in lines:
        score = _score(called, line)
        answers.write(json.dumps({"value": score.value, "note": score.note}).encode() + b"\n")
    return 0


def _score(function: Python, line: bytes) -> Score:
    try:
        return function.called(row_of_line(line))
    except (pa.ArrowException, ValueError) as error:
        return missing(f"the row cannot be read: {error}")


def _end_with(parent: int) -> None:
    """End when the parent does, with all that the function started: one that never returns reads
    no end of stdin."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.killpg(0, signal.SIGKILL)  # we lead a group of our own


if __name__ == "__main__":
    sys.exit(main())
