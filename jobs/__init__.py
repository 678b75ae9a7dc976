"""Submission, input and output files, job state, and the command line of pagemill.

    from jobs import submit

    job = submit("prompts.jsonl", model="smollm2-135m")
    job.wait()
    job.results().pandas()

docs/python.md tells of all names. Importing this package loads nothing else of ours, and no torch:
a name is looked up where it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.api.job import Job, RowFailure
    from jobs.api.listing import list_jobs
    from jobs.api.results import Results
    from jobs.api.status import (
        ChunkCounts,
        DeviceUse,
        Failure,
        JobStatus,
        Notification,
        RowCounts,
        TokenCounts,
    )
    from jobs.api.submitting import run, submit
    from jobs.errors import (
        BrokerError,
        DatabaseError,
        DatabaseUnavailable,
        InputError,
        JobNotFound,
        JobsError,
        KeyReused,
        OutputError,
        OutputNotReady,
        PackageMissing,
        SettingsError,
        StateConflict,
        StorageError,
        StorageUnavailable,
        UsageError,
        WaitTimedOut,
        WorkerFailed,
    )
    from jobs.records import EventRecord
    from jobs.settings import Settings
    from jobs.states import JobState

__version__ = "0.1.0"

_HOMES = {
    "jobs.api.job": ("Job", "RowFailure"),
    "jobs.api.listing": ("list_jobs",),
    "jobs.api.results": ("Results",),
    "jobs.api.status": (
        "ChunkCounts", "DeviceUse", "Failure", "JobStatus", "Notification", "RowCounts",
        "TokenCounts",
    ),
    "jobs.api.submitting": ("run", "submit"),
    "jobs.errors": (
        "BrokerError", "DatabaseError", "DatabaseUnavailable", "InputError", "JobNotFound",
        "JobsError", "KeyReused", "OutputError", "OutputNotReady", "PackageMissing",
        "SettingsError", "StateConflict", "StorageError", "StorageUnavailable", "UsageError",
        "WaitTimedOut", "WorkerFailed",
    ),
    "jobs.records": ("EventRecord",),
    "jobs.settings": ("Settings",),
    "jobs.states": ("JobState",),
}  # fmt: skip

__all__ = [  # noqa: RUF022 (the first are those that most programs need)
    "submit", "run", "Job", "list_jobs", "JobStatus", "JobState", "Results", "RowFailure",
    "RowCounts", "TokenCounts", "DeviceUse", "ChunkCounts", "Failure", "Notification",
    "EventRecord", "Settings",
    "BrokerError", "DatabaseError", "DatabaseUnavailable", "InputError", "JobNotFound",
    "JobsError", "KeyReused", "OutputError", "OutputNotReady", "PackageMissing",
    "SettingsError", "StateConflict", "StorageError", "StorageUnavailable", "UsageError",
    "WaitTimedOut", "WorkerFailed",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        for module, names in _HOMES.items():
            if name in names:
                from importlib import import_module

                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module 'jobs' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
