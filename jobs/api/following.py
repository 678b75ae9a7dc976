"""An evaluation that is waited for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.api.display import Watcher
from jobs.api.opening import log

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment
    from jobs.cli.evaluating import Answer
    from jobs.cli.options import EngineOptions
    from jobs.records import JobRecord
    from jobs.records.evaluations import EvaluationRecord


def follow_to_end(
    deployment: Deployment,
    watcher: Watcher,
    evaluation_id: str,
    progress: bool,
    timeout: float | None = None,
    engine: EngineOptions | None = None,
) -> EvaluationRecord | None:
    """Drive an evaluation until it has ended; None if the time ran out before.

    Args:
        progress: tell why a job waits.
        engine: of the worker of our own that answers its jobs; they are left to others without.

    Raises:
        WorkerLeft: that worker left, or was told to leave, before the end.
    """
    from jobs.cli.evaluating import follow_evaluation, with_worker

    watched = replace(deployment, tell=watcher.tell)
    answer = None
    if engine is not None:
        answer = with_worker(
            watched, evaluation_id, engine, lambda: nullcontext(watcher.show), log.info
        )
    elif not progress:
        answer = _quietly(watched, watcher)
    return follow_evaluation(watched, evaluation_id, watcher.show, timeout, answer)


def waiting_for_jobs(
    deployment: Deployment, watcher: Watcher, progress: bool, timeout: float | None
) -> Callable[[JobRecord], bool]:
    """Waits for one job after the other, for so many seconds in all; False once they are over."""
    from jobs.cli.evaluating import waiting, within

    watched = replace(deployment, tell=watcher.tell)
    wait = waiting(watched, watcher.show) if progress else _quietly(watched, watcher)
    return within(wait, timeout)


def _quietly(deployment: Deployment, watcher: Watcher) -> Answer:
    """Waits for jobs, and does not tell why they wait."""
    from jobs.cli.watching import follow

    def wait(job: JobRecord, timeout: float | None) -> bool:
        return follow(deployment, job.id, watcher.show, timeout) is not None

    return wait
