"""The Celery app of a worker, and its consumer loop."""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import Celery
from celery.worker import WorkController, state

from jobs.settings import Settings
from jobs.wake import RUN_CHUNK, make_app


def make_worker_app(settings: Settings, run_chunk: Callable[[str], None]) -> Celery:
    """The app whose one task wakes this process for a chunk.

    The message is only a wake-up: what is really done is decided by a claim in SQL, so a
    message that comes twice, late or never does no harm.
    """
    app = make_app(settings)

    @app.task(name=RUN_CHUNK)  # type: ignore[untyped-decorator]
    def run(job_id: str, chunk_id: str) -> None:
        run_chunk(chunk_id)

    return app


def consume(app: Celery, concurrency: int) -> None:
    """Take messages until `stop_consuming`; returns when the running tasks have ended.

    The threads pool, since one engine serves all tasks of this process. `WorkController` and
    not the `celery worker` program: the signals are ours (drain, then hand back).
    """
    WorkController(
        app=app,
        pool_cls="threads",
        concurrency=concurrency,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel=logging.WARNING,
    ).start()


def stop_consuming() -> None:
    """Ask the consumer loop to end; may be called from a signal handler or any thread."""
    state.should_stop = 0
