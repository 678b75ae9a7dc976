"""The far end of `jobs.children`: a process that is asked one thing, and tells what it finds."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import EngineError
from jobs.errors import JobsError, SettingsError, StorageError
from worker.errors import WorkerError

Tell = Callable[..., None]


class Refused(Exception):
    """What was asked cannot be done; `kind` is one that `jobs.children` knows."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def answer(
    work: Callable[[Mapping[str, Any], Tell], None],
    hide: Callable[[str], str] = lambda text: text,
) -> int:
    """Do the work that stdin asks for; returns the exit status.

    Args:
        work: is given the request, and what tells an event by its name and its fields.
        hide: takes the secrets out of the message of an error.
    """
    # Unbuffered: a thread that waits in a buffered one would keep this process from ending.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    if not line:  # nobody asks any more
        return 1
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    # What libraries print must not come between the events.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        lock = threading.Lock()

        def tell(event: str, **fields: Any) -> None:
            with lock:
                print(json.dumps({"event": event, **fields}), file=out, flush=True)

        try:
            work(json.loads(line), tell)
        except BrokenPipeError:
            return 1
        except (Refused, EngineError, WorkerError, JobsError) as error:
            tell("error", kind=_kind(error), message=hide(str(error)))
        except Exception as error:  # that nobody foresaw
            tell("error", kind="", message=hide(f"{type(error).__name__}: {error}"))
    return 0


def _kind(error: Exception) -> str:
    match error:
        case Refused():
            return error.kind
        case StorageError():
            return "storage"
        case SettingsError():
            return "settings"
        case EngineError() | WorkerError():
            return "model"
    return ""


def _leave_with_parent() -> None:
    """Whoever asked holds our stdin open for as long as the answer is wanted."""
    while os.read(0, 1024):
        continue
    os._exit(1)
