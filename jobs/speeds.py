"""How fast a model was the last time that it was measured, and what follows for other rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from jobs.kinds import JobKind, kind_of_job
from jobs.records import JobRecord, WorkerRecord
from jobs.states import JobState
from jobs.store import Store
from jobs.store.events import STARTED

_LOOKED_AT = 100  # newest jobs of a model


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """What a job took, or what a worker said of itself.

    Attributes:
        source: `job`, or `worker` where no job of that kind has ended.
        id: of that job or worker.
        at: when it was measured.
        worker: that began the job; None if it is not known any more.
        seconds: from the first chunk's claim to the end.
        computed_tokens: prompt tokens that were not in the prefix cache.
        tokens_per_second: generated.
    """

    source: str
    id: str
    at: datetime
    tokens_per_second: float
    worker: str | None = None
    device: str | None = None
    dtype: str | None = None
    seconds: float | None = None
    computed_tokens: int = 0
    completion_tokens: int = 0

    def time_for(self, computed_tokens: int, completion_tokens: int) -> float | None:
        """Seconds, at most, for so many tokens at this pace; None if that cannot be told.

        A job's time is some seconds for each computed prompt token and some for each generated
        one, and how it is split between the two is not known. Whatever the split, other rows
        take no longer than the time of the job, as many times as they have more of the one or of
        the other.
        """
        if self.seconds is None:
            if not completion_tokens or not self.tokens_per_second:
                return None
            return completion_tokens / self.tokens_per_second
        ratios = []
        for wanted, measured in (
            (computed_tokens, self.computed_tokens),
            (completion_tokens, self.completion_tokens),
        ):
            if wanted and not measured:
                return None
            if measured:
                ratios.append(wanted / measured)
        return self.seconds * max(ratios) if ratios else None


def last_measured(store: Store, model: str, kind: JobKind) -> MeasuredSpeed | None:
    """The speed of the newest job of a model that ended well, else what a worker said last.

    Raises:
        DatabaseError: the database cannot be asked.
    """
    known = {worker.id: worker for worker in store.workers(all=True) if worker.model == model}
    jobs = store.list_jobs([JobState.COMPLETED], _LOOKED_AT, model=model)
    ended = [job for job in jobs if kind_of_job(job.options) is kind and _seconds(job) > 0]
    for job in sorted(ended, key=_ended_at, reverse=True):
        counts = job.counts
        computed = counts.prompt_tokens - counts.cached_tokens
        # The tokens of a retry were computed by several versions, in an unknown time.
        if job.version != 1 or not (computed + counts.completion_tokens):
            continue
        began = [event.actor for event in store.events(job.id) if event.event == STARTED]
        worker = known.get(began[-1]) if began else None
        return MeasuredSpeed(
            "job",
            job.id,
            _ended_at(job),
            counts.completion_tokens / _seconds(job),
            worker=began[-1] if began else None,
            device=None if worker is None else worker.status.device,
            dtype=None if worker is None else worker.status.dtype,
            seconds=_seconds(job),
            computed_tokens=computed,
            completion_tokens=counts.completion_tokens,
        )
    return _of_worker(known.values()) if kind is JobKind.GENERATE else None


def _of_worker(workers: Iterable[WorkerRecord]) -> MeasuredSpeed | None:
    measured = [worker for worker in workers if worker.status.tokens_per_second > 0]
    if not measured:
        return None
    worker = max(measured, key=lambda each: each.seen_at)
    status = worker.status
    return MeasuredSpeed(
        "worker", worker.id, worker.seen_at, status.tokens_per_second,
        worker=worker.id, device=status.device, dtype=status.dtype,
    )  # fmt: skip


def _ended_at(job: JobRecord) -> datetime:
    assert job.finished_at is not None
    return job.finished_at


def _seconds(job: JobRecord) -> float:
    if job.started_at is None or job.finished_at is None:
        return 0.0
    return (job.finished_at - job.started_at).total_seconds()
