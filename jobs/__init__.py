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
    from jobs.api.evaluate import evaluate
    from jobs.api.evaluation import Evaluation
    from jobs.api.evaluation_status import EvaluationStatus
    from jobs.api.job import Job, RowFailure
    from jobs.api.listing import list_jobs
    from jobs.api.results import Results
    from jobs.api.scores import Scores
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
        EvaluationNotFound,
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
    from jobs.evaluation.gate import Finding
    from jobs.records import EventRecord
    from jobs.records.evaluations import ComparisonRecord, EvaluationState, ScoreRecord, Verdict
    from jobs.settings import Settings
    from jobs.states import JobState

__version__ = "0.1.0"

_HOMES = {
    "jobs.api.evaluate": ("evaluate",),
    "jobs.api.evaluation": ("Evaluation",),
    "jobs.api.evaluation_status": ("EvaluationStatus",),
    "jobs.api.job": ("Job", "RowFailure"),
    "jobs.api.listing": ("list_jobs",),
    "jobs.api.results": ("Results",),
    "jobs.api.scores": ("Scores",),
    "jobs.api.status": (
        "ChunkCounts", "DeviceUse", "Failure", "JobStatus", "Notification", "RowCounts",
        "TokenCounts",
    ),
    "jobs.api.submitting": ("run", "submit"),
    "jobs.errors": (
        "BrokerError", "DatabaseError", "DatabaseUnavailable", "EvaluationNotFound", "InputError",
        "JobNotFound", "JobsError", "KeyReused", "OutputError", "OutputNotReady", "PackageMissing",
        "SettingsError", "StateConflict", "StorageError", "StorageUnavailable", "UsageError",
        "WaitTimedOut", "WorkerFailed",
    ),
    "jobs.evaluation.gate": ("Finding",),
    "jobs.records": ("EventRecord",),
    "jobs.records.evaluations": (
        "ComparisonRecord", "EvaluationState", "ScoreRecord", "Verdict",
    ),
    "jobs.settings": ("Settings",),
    "jobs.states": ("JobState",),
}  # fmt: skip

__all__ = [  # noqa: RUF022 (the first are those that most programs need)
    "submit", "run", "Job", "list_jobs", "JobStatus", "JobState", "Results", "RowFailure",
    "RowCounts", "TokenCounts", "DeviceUse", "ChunkCounts", "Failure", "Notification",
    "EventRecord", "Settings",
    "evaluate", "Evaluation", "EvaluationStatus", "EvaluationState", "Verdict", "Scores",
    "ScoreRecord", "ComparisonRecord", "Finding",
    "BrokerError", "DatabaseError", "DatabaseUnavailable", "EvaluationNotFound", "InputError",
    "JobNotFound", "JobsError", "KeyReused", "OutputError", "OutputNotReady", "PackageMissing",
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
