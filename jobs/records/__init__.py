"""The nouns that `jobs` and `worker` speak in.

rows         what became of a row
counts       how many rows, how many tokens
device_time  how long devices computed
plans        a new job, and what a version of a job has to do
jobs         jobs, windows, chunks and events, as SQL has them
leases       the right to work on a chunk, or to merge a window
workers      workers, as they report themselves

Those of schedules and evaluations are in `jobs.records.evaluations`.
"""

from jobs.records.counts import Counts
from jobs.records.device_time import DeviceTime
from jobs.records.jobs import (
    ChunkRecord,
    EventRecord,
    JobProgress,
    JobRecord,
    TakenSlots,
    WindowRecord,
)
from jobs.records.leases import ChunkLease, MergeLease, Renewal, WakeUp
from jobs.records.plans import ChunkSpec, NewJob, Plan, WindowSpec
from jobs.records.rows import (
    Choice,
    ContinuationScore,
    ErrorTally,
    RowErrorInfo,
    RowResult,
    TokenLogprob,
    TopLogprob,
)
from jobs.records.workers import WorkerRecord, WorkerStatus

__all__ = [
    "Choice",
    "ChunkLease",
    "ChunkRecord",
    "ChunkSpec",
    "ContinuationScore",
    "Counts",
    "DeviceTime",
    "ErrorTally",
    "EventRecord",
    "JobProgress",
    "JobRecord",
    "MergeLease",
    "NewJob",
    "Plan",
    "Renewal",
    "RowErrorInfo",
    "RowResult",
    "TakenSlots",
    "TokenLogprob",
    "TopLogprob",
    "WakeUp",
    "WindowRecord",
    "WindowSpec",
    "WorkerRecord",
    "WorkerStatus",
]
