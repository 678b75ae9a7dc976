"""The states of jobs and chunks, and every legal move between them.

Job states are those of the OpenAI Batch API, plus `queued`.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    VALIDATING = "validating"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


class ChunkState(StrEnum):
    QUEUED = "queued"  # waits for a worker
    RUNNING = "running"  # leased: owner, epoch and expiry are set
    DONE = "done"  # its part is committed
    STOPPED = "stopped"  # its job was cancelled or expired before it was done


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED})

# States in which a queued chunk may be begun, unless the job is paused.
HAS_WORK = (JobState.QUEUED, JobState.IN_PROGRESS)

# `cancelling` also carries an expiry to its end: `jobs.stop_reason` says which of the two it is.
JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.VALIDATING: frozenset({JobState.QUEUED, JobState.FAILED}),
    JobState.QUEUED: frozenset(
        {JobState.IN_PROGRESS, JobState.FINALIZING, JobState.CANCELLING, JobState.FAILED}
    ),
    JobState.IN_PROGRESS: frozenset({JobState.FINALIZING, JobState.CANCELLING, JobState.FAILED}),
    JobState.CANCELLING: frozenset({JobState.FINALIZING, JobState.FAILED}),
    JobState.FINALIZING: frozenset(
        {JobState.COMPLETED, JobState.CANCELLED, JobState.EXPIRED, JobState.FAILED}
    ),
    # `retry` opens a job again for its next version; one that failed, if an earlier version of it
    # was published.
    JobState.COMPLETED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset({JobState.QUEUED}),
    JobState.EXPIRED: frozenset({JobState.QUEUED}),
    JobState.FAILED: frozenset({JobState.QUEUED}),
}

CHUNK_MOVES: dict[ChunkState, frozenset[ChunkState]] = {
    ChunkState.QUEUED: frozenset({ChunkState.RUNNING, ChunkState.STOPPED}),
    ChunkState.RUNNING: frozenset(
        {ChunkState.RUNNING, ChunkState.QUEUED, ChunkState.DONE, ChunkState.STOPPED}
    ),
    ChunkState.DONE: frozenset(),
    ChunkState.STOPPED: frozenset(),
}


def how_to_end(job_id: str, state: JobState) -> str:
    """What to do where a job has to have ended, as a sentence for people."""
    waiting = f"wait until it has ended (`pagemill wait {job_id}`)"
    if state not in HAS_WORK:  # it comes to its end, and a cancel changes nothing
        return waiting
    return f"{waiting}, or end it with `pagemill cancel {job_id}`"
