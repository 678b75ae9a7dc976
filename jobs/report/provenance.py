"""Where the numbers of a run come from: its job, the workers that answered, their software."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.errors import JobNotFound, JobsError
from jobs.manifest import read_manifest
from jobs.records import JobRecord
from jobs.records.evaluations import EvaluationRecord
from jobs.records.workers import WorkerRecord
from jobs.storage import Storage
from jobs.store import Store


@dataclass(frozen=True, slots=True)
class Provenance:
    """A run, its job, and what is still known of how that was answered.

    Attributes:
        job: None if it is gone, or was never submitted.
        judges: the jobs that judged its answers, by scorer; those that are gone are left out.
        software: version of pagemill that published the answers.
        devices: such as `cpu float32`, of the workers that its events name and that are remembered.
    """

    evaluation: EvaluationRecord
    job: JobRecord | None
    judges: dict[str, JobRecord]
    software: str | None
    devices: tuple[str, ...]


def provenance(store: Store, storage: Storage, evaluation: EvaluationRecord) -> Provenance:
    job = _job(store, evaluation.job_id)
    judges = {name: _job(store, id) for name, id in evaluation.judge_jobs.items()}
    return Provenance(
        evaluation,
        job,
        {name: judge for name, judge in judges.items() if judge is not None},
        _software(storage, job),
        _devices(store, job),
    )


def _job(store: Store, job_id: str | None) -> JobRecord | None:
    if job_id is None:
        return None
    try:
        return store.job(job_id)
    except JobNotFound:
        return None


def _software(storage: Storage, job: JobRecord | None) -> str | None:
    if job is None or job.published_version is None:
        return None
    try:
        software = read_manifest(storage.job(job.folder), job.published_version).get("software")
    except JobsError:  # the report says what it knows
        return None
    return software if isinstance(software, str) else None


def _devices(store: Store, job: JobRecord | None) -> tuple[str, ...]:
    if job is None:
        return ()
    actors = {event.actor for event in store.events(job.id)}
    return tuple(sorted(set(_described(w for w in store.workers(all=True) if w.id in actors))))


def _described(workers: Iterable[WorkerRecord]) -> Iterable[str]:
    for worker in workers:
        if worker.status.device is not None:
            yield " ".join(filter(None, (worker.status.device, worker.status.dtype)))
