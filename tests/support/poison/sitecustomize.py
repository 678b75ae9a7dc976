"""Makes engines die of certain rows; Python imports this at its start, where it is on the path.

The product knows nothing of it. `tests.support.poisoned.poison` says in the environment which
prompts are poison, and what they do.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any


def _die(how: str) -> None:
    if how == "raise":
        raise RuntimeError("device-side assert triggered")
    if how == "host":
        os.kill(os.getppid(), signal.SIGKILL)
    if how == "garble":
        pipe = Connection(os.dup(int(sys.orig_argv[5])), readable=False)
        pipe.send_bytes(b'{"type":"Report"')
        return
    os.kill(os.getpid(), signal.SIGSTOP if how == "hang" else signal.SIGKILL)


def _poison(marker: tuple[int, ...], how: str, at_token: int) -> None:
    from engine.batch import Batch
    from engine.request import Request
    from engine.runner import Runner
    from engine.scheduler import Scheduler

    dies_at: dict[str, int] = {}  # position in the sequence
    add, execute = Scheduler.add, Runner.execute

    def noting(self: Scheduler, request: Request, *rules: Any) -> None:
        prompt = request.token_ids
        if any(prompt[i : i + len(marker)] == marker for i in range(len(prompt))):
            dies_at[request.request_id] = len(prompt) + at_token
        add(self, request, *rules)
        if how == "add" and request.request_id in dies_at:
            raise RuntimeError("no room in a table")

    def dying(self: Runner, batch: Batch) -> Any:
        if how != "add" and any(
            s.end >= dies_at.get(s.request_id, s.end + 1) for s in batch.sequences
        ):
            _die(how)
        return execute(self, batch)

    Scheduler.add = noting  # type: ignore[method-assign]
    Runner.execute = dying  # type: ignore[method-assign]


if sys.orig_argv[1:4] == ["-P", "-m", "engine"]:
    _poison(
        tuple(map(int, os.environ["POISON_TOKENS"].split(","))),
        os.environ["POISON_DEATH"],
        int(os.environ["POISON_AT_TOKEN"]),
    )
